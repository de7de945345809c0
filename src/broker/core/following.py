"""Output of running jobs that somebody follows: what came last of it, and the requests for more.

    worker ── output: offset, bytes ──► what is held ◄── follow: offsets that were had ── follower
           ◄── passed ────────────────       └────────── followed: what comes after ────►

Nothing of this is stored, and nothing of it is pushed at anybody: a follower says how much of each stream it
has had, and the answer is what comes after that. So it is the followers who set the pace. A worker has one
chunk of each stream on its way, and is answered when a follower has come back for what is behind it: the
quickest of them, or all who want it `lossless`. What a program writes meanwhile waits in its worker, which
drops the oldest, or for a lossless follower reads no more, so that the program waits. Whoever is slower than
the others, or comes back after a pause, sees by the offset of what he gets how much is lost to him.

A chunk that nobody has taken is still the worker's. So it outlives the end of a broker, and what is held here
are copies for followers that are slower.

A follower is a connection, not a request: it counts from its first `follow` until it is told of the job's end
or its connection ends. What it follows need not exist yet, if it says so. One that is `tied` takes the job
with it when it goes.
"""

from collections import deque
from collections.abc import Iterable

import attrs

from ...proto import limits, messages, work
from . import effects as fx
from .events import Received
from .job import Job
from .memory import Memory
from .queues import Caller
from .workers import Lease

Piece = tuple[int, int, bytes]
"""Stream, offset in it, bytes."""

MERGED_BYTES = 4 * limits.KIB
"""A piece that goes on where the last one ended is added to it, up to so much: what trickles makes few pieces."""

PIECE_BYTES = 128
"""Counted for each piece beside its bytes, so that small ones are bounded too."""


@attrs.define(eq=False)
class _Follower:
    """One connection, and how much it has had by its own account."""

    connection: int
    had: messages.Follow
    request: int | None = None
    """The one that waits."""
    deadline_ms: int | None = None
    over: deque[tuple[int, dict[int, int]]] = attrs.Factory(lambda: deque(maxlen=limits.OUTCOMES_KEPT))
    """Attempts that are over, and how far their streams had come when the next one spoke. To be told before news of that."""

    def has_had(self, attempt: int, stream: int) -> int:
        """Up to which offset."""
        if self.had.attempt != attempt:
            return 0
        return self.had.stdout if stream == messages.STDOUT else self.had.stderr


@attrs.define(eq=False)
class _Followed:
    """A job with its followers, and what is held of its newest attempt that has said anything."""

    id: str
    followers: dict[int, _Follower] = attrs.Factory(dict[int, _Follower])
    attempt: int = 0
    pieces: deque[Piece] = attrs.Factory(deque[Piece])
    held_bytes: int = 0
    came: dict[int, int] = attrs.Factory(dict[int, int])
    """Of each stream: the offset behind all that has come."""
    passing: dict[int, Caller] = attrs.Factory(dict[int, Caller])
    """Of each stream: the worker's request that is not answered yet."""
    told: str = ""
    """What its worker was told last."""
    state: str = ""
    """The final one; empty before."""
    forget_by_ms: int | None = None
    """When it is forgotten although not all its followers were told of its end."""

    @property
    def policy(self) -> str:
        """What its worker is to do with output that nobody takes; empty: nobody wants any."""
        if any(follower.had.lossless for follower in self.followers.values()):
            return work.BLOCK
        return work.KEEP if self.followers else ""

    def add(self, stream: int, offset: int, data: bytes) -> None:
        """A chunk came, perhaps for the second time."""
        came = self.came.get(stream, 0)
        data = data[max(came - offset, 0) :]
        offset = max(offset, came)
        self.came[stream] = offset + len(data)
        if not data:
            # The worker has dropped all up to here.
            return
        self._append(stream, offset, data)
        while self.held_bytes > limits.FOLLOWED_BYTES_MAX:
            _, _, dropped = self.pieces.popleft()
            self.held_bytes -= len(dropped) + PIECE_BYTES

    def _append(self, stream: int, offset: int, data: bytes) -> None:
        last = self.pieces[-1] if self.pieces else (0, 0, b"")
        is_next = last[0] == stream and last[1] + len(last[2]) == offset
        if is_next and len(last[2]) + len(data) <= MERGED_BYTES:
            self.pieces[-1] = (stream, last[1], last[2] + data)
            self.held_bytes += len(data)
        else:
            self.pieces.append((stream, offset, data))
            self.held_bytes += len(data) + PIECE_BYTES

    def begin(self, attempt: int) -> None:
        """Another attempt has something to say: what there was of the one before is over."""
        if attempt != self.attempt:
            for follower in self.followers.values():
                if self.came and follower.request is None:
                    follower.over.append((self.attempt, dict(self.came)))
            self.attempt = attempt
            self.pieces.clear()
            self.held_bytes = 0
            self.came.clear()

    def news_for(self, follower: _Follower) -> list[list[int | bytes]]:
        """What it has not had, oldest first, as much as goes into one answer."""
        found: list[list[int | bytes]] = []
        room = limits.FOLLOWED_ANSWER_BYTES
        for stream, offset, data in reversed(self._not_had_by(follower)):
            had = max(follower.has_had(self.attempt, stream) - offset, 0)
            fresh = data[had : had + room]
            found.append([stream, offset + had, fresh])
            room -= len(fresh) + PIECE_BYTES
            if room <= 0:
                return found
        told = {piece[0] for piece in found}
        for stream, came in self.came.items():
            if stream not in told and follower.has_had(self.attempt, stream) < came:
                # What there was is dropped, and perhaps nothing comes behind it by which that would be seen.
                found.append([stream, came, b""])
        return found

    def _not_had_by(self, follower: _Follower) -> list[Piece]:
        """Pieces with something new to it, newest first. Most followers have had all but the last."""
        behind = {
            stream: had
            for stream, came in self.came.items()
            if (had := follower.has_had(self.attempt, stream)) < came
        }
        found: list[Piece] = []
        for piece in reversed(self.pieces):
            if not behind:
                break
            stream, offset, data = piece
            if stream in behind and offset + len(data) > behind[stream]:
                found.append(piece)
            else:
                # What is older of this stream was had as well.
                behind.pop(stream, None)
        return found

    def has_taken(self, stream: int) -> bool:
        """Whether the last chunk of a stream is with those who set the pace."""
        wanted = [each for each in self.followers.values() if each.had.lossless]
        whether = all if wanted else any
        came = self.came.get(stream, 0)
        return whether(
            each.has_had(self.attempt, stream) >= came for each in wanted or self.followers.values()
        )


class Following:
    """Followed jobs by id, and the requests of their followers and workers."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._followed: dict[str, _Followed] = {}
        self._open: set[Caller] = set()
        self.check_ms: int | None = None
        """The earliest instant at which anything here has a deadline; never later than the truth."""

    def __len__(self) -> int:
        return len(self._followed)

    def is_waiting(self, caller: Caller) -> bool:
        """Whether that `follow` is open: its id cannot be used for another request now."""
        return caller in self._open

    # --- followers -----------------------------------------------------------------------------------

    def is_over(self, id: str) -> bool:
        """A job that is finished, of which there may be something left for its followers."""
        followed = self._followed.get(id)
        return followed is not None and bool(followed.state)

    def revived(self, id: str) -> None:
        """It is not finished: perhaps it was, and is to run again."""
        followed = self._followed.get(id)
        if followed is not None:
            followed.state, followed.forget_by_ms = "", None

    def follow(self, event: Received, message: messages.Follow, lease: Lease | None, state: str) -> None:
        """Answer with what there is that it has not had, else when there is something, or after its timeout.

        `lease` is that of the attempt that runs, `state` the final one of a job that is on disk only.
        """
        followed = self._followed.get(message.id)
        if followed is None:
            if state:
                self._memory.answer(
                    event.connection, event.request, messages.Followed(message.id, state, message.attempt, [])
                )
                return
            if len(self._followed) >= limits.FOLLOWED_MAX:
                text = f"{limits.FOLLOWED_MAX} jobs are followed already"
                self._memory.refuse(event.connection, event.request, "waits_full", text)
                return
            followed = self._followed[message.id] = _Followed(message.id)
        follower = followed.followers.get(event.connection)
        if follower is None:
            follower = followed.followers[event.connection] = _Follower(event.connection, message)
        else:
            # Should it ask anew before it was answered.
            self._answer(followed, follower, [])
        followed.state = followed.state or state
        follower.had, follower.request = message, event.request
        self._open.add((event.connection, event.request))
        timeout_ms = message.timeout_ms
        follower.deadline_ms = None if timeout_ms is None else self._memory.now.mono_ms + timeout_ms
        self._check_by(follower.deadline_ms)
        self._tell_worker(followed, lease)
        self._confirm(followed)
        self._bring(followed, follower)
        if timeout_ms == 0:
            self._answer(followed, follower, [])

    def _bring(self, followed: _Followed, follower: _Follower) -> None:
        """What is new to a follower that waits, or that nothing more will come."""
        if follower.request is None:
            return
        while follower.over:
            attempt, came = follower.over.popleft()
            gaps: list[list[int | bytes]] = [
                [stream, end, b""] for stream, end in came.items() if follower.has_had(attempt, stream) < end
            ]
            if gaps and follower.had.attempt <= attempt:
                self._answer(followed, follower, gaps, attempt)
                return
        news = followed.news_for(follower)
        if news:
            self._answer(followed, follower, news)
        elif followed.state:
            self._answer(followed, follower, [])
            self._forget_follower(followed, follower.connection)

    def _answer(
        self, followed: _Followed, follower: _Follower, news: list[list[int | bytes]], attempt: int = 0
    ) -> None:
        """News, of the newest attempt if nothing else is said, the end, or neither, if it waits.

        Only news show nothing but what runs, which is stored.
        """
        if follower.request is None:
            return
        is_end = bool(followed.state) and not news
        state = followed.state if is_end else None
        attempt = attempt or followed.attempt or follower.had.attempt
        answer = messages.Followed(followed.id, state, attempt, news)
        self._memory.effects.append(fx.Answer(follower.connection, follower.request, answer, now=bool(news)))
        self._open.discard((follower.connection, follower.request))
        follower.request, follower.deadline_ms = None, None

    def _tell_worker(self, followed: _Followed, lease: Lease | None) -> None:
        """Who runs it is to send its output, or to do something else with what nobody takes."""
        policy = followed.policy
        if lease is None or followed.told == policy or not policy or lease.worker.connection is None:
            return
        followed.told = policy
        push = work.Stream(list(lease.token), policy)
        self._memory.effects.append(fx.Push(lease.worker.connection, push))

    # --- the attempt -----------------------------------------------------------------------------------

    def policy_for(self, job: Job) -> str | None:
        """A job is handed out: what its worker is to do with output that nobody takes; None: keep it."""
        followed = self._followed.get(job.id) if self._followed else None
        if followed is None:
            return None
        self.revived(job.id)
        followed.told = followed.policy
        return followed.policy

    def worker_returned(self, job: Job, lease: Lease) -> None:
        """Its worker is on a new connection, or was told by a broker before this one."""
        followed = self._followed.get(job.id) if self._followed else None
        if followed is not None:
            followed.told = ""
            self._tell_worker(followed, lease)

    def output(self, event: Received, message: work.Output, job: Job) -> None:
        """A chunk of what it says. Answered when it has been taken, or if nobody wants any."""
        followed = self._followed.get(job.id)
        if followed is None:
            answer = work.Passed(is_followed=False)
            self._memory.effects.append(fx.Answer(event.connection, event.request, answer, now=True))
            return
        followed.begin(job.attempt)
        followed.add(message.stream, message.offset, message.data)
        followed.passing[message.stream] = (event.connection, event.request)
        self._confirm(followed)
        for follower in list(followed.followers.values()):
            self._bring(followed, follower)

    def _confirm(self, followed: _Followed) -> None:
        """Answer the worker's requests for chunks that have been taken."""
        for stream in [stream for stream in followed.passing if followed.has_taken(stream)]:
            self._pass(followed, stream, is_followed=True)

    def _pass(self, followed: _Followed, stream: int, *, is_followed: bool) -> None:
        connection, request = followed.passing.pop(stream)
        answer = work.Passed(is_followed)
        self._memory.effects.append(fx.Answer(connection, request, answer, now=True))

    def attempt_ended(self, job: Job) -> None:
        """Its worker sends nothing more of it."""
        followed = self._followed.get(job.id) if self._followed else None
        if followed is None:
            return
        followed.told = ""
        for stream in list(followed.passing):
            self._pass(followed, stream, is_followed=False)

    def job_finished(self, job: Job) -> None:
        """Tell those who wait; the others when they have had all that there is."""
        followed = self._followed.get(job.id) if self._followed else None
        if followed is None:
            return
        followed.state = str(job.state)
        followed.forget_by_ms = self._memory.now.mono_ms + limits.FOLLOWED_KEPT_MS
        self._check_by(followed.forget_by_ms)
        for follower in list(followed.followers.values()):
            self._bring(followed, follower)

    # --- ends ------------------------------------------------------------------------------------------

    def connection_ended(self, connection: int) -> Iterable[str]:
        """Nobody is there to be answered. The ids of jobs that were tied to it."""
        tied: list[str] = []
        for followed in list(self._followed.values()):
            # Its worker asks anew on its next connection.
            followed.passing = {
                stream: caller for stream, caller in followed.passing.items() if caller[0] != connection
            }
            follower = followed.followers.get(connection)
            if follower is not None:
                self._forget_follower(followed, connection)
                if follower.had.tied and not followed.state:
                    tied.append(followed.id)
        return tied

    def _forget_follower(self, followed: _Followed, connection: int) -> None:
        follower = followed.followers.pop(connection)
        if follower.request is not None:
            self._open.discard((connection, follower.request))
        if followed.followers:
            self._confirm(followed)
        else:
            self._forget(followed)

    def _forget(self, followed: _Followed) -> None:
        for stream in list(followed.passing):
            self._pass(followed, stream, is_followed=False)
        for follower in followed.followers.values():
            self._answer(followed, follower, [])
        del self._followed[followed.id]

    def time_passed(self) -> None:
        """Answer what has reached its deadline, forget what is over, and find the next instant."""
        mono = self._memory.now.mono_ms
        if self.check_ms is None or self.check_ms > mono:
            return
        for followed in list(self._followed.values()):
            for follower in followed.followers.values():
                if follower.deadline_ms is not None and follower.deadline_ms <= mono:
                    self._answer(followed, follower, [])
            if followed.forget_by_ms is not None and followed.forget_by_ms <= mono:
                self._forget(followed)
        deadlines = [
            at
            for followed in self._followed.values()
            for at in (followed.forget_by_ms, *(each.deadline_ms for each in followed.followers.values()))
        ]
        self.check_ms = min((at for at in deadlines if at is not None), default=None)

    def _check_by(self, deadline_ms: int | None) -> None:
        if deadline_ms is not None and (self.check_ms is None or deadline_ms < self.check_ms):
            self.check_ms = deadline_ms

    def stop(self) -> None:
        """The broker ends: followers are told so. Workers keep what was not taken."""
        for followed in self._followed.values():
            for follower in followed.followers.values():
                if follower.request is not None:
                    text = "the broker is stopping; ask again when it is back"
                    self._memory.refuse(follower.connection, follower.request, "shutting_down", text)
        self._followed.clear()
        self._open.clear()
