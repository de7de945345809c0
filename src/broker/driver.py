"""The driver: sockets to events, events through the core, effects through the committer to sockets.

One round handles every peer that is ready: read, decode, step. What was decided in a round is one
batch; the batch is handed to the journal, and after its commit each peer gets all that is for it in
one `send`. Between rounds the loop waits for the poller, or for the next deadline.

Order within a round, and why:

1. Time is read. If the loop should have been here long ago, the broker itself was stopped or starved, or
   committed itself: the core is told at once how long it was (`Stalled`), before anything is decided that is not
   late by it; then everything that waits in the sockets is read, and only then may anything expire.
2. Peers that are ready, as many as the round has room for; then newcomers; then turns for those who
   have said more (see `intake`).
3. Deadlines of the core. After the peers, so that a heartbeat that arrived in time counts. None while a
   batch is held up: a job that waits in it has not left the broker and cannot be late, and a verdict could
   not be shown. Once it is stored the core is told what leaves only now (`HeldUp`); and if it did not fit,
   how long that was, as after a stall.
4. The batch is handed over, and waited for as `thread` says.

The driver has no rules of the queue. It knows who is connected, what is unanswered, and what waits.
"""

from collections.abc import Callable, Mapping
from typing import Any

import trio

from ..proto import limits, work
from ..proto.connection import UNANSWERABLE, Ended, Refused, Request
from ..proto.messages import Enqueue, Hello, Jobs, Refusal, Snapshot, StatusReport
from .batchtimes import BatchTimes
from .chores import CHECKPOINT_MS
from .clock import Clock
from .committer import Committer
from .core.effects import Answer, Effect, LookAgain, Push, Refuse
from .core.events import (
    Connected,
    Event,
    HeldUp,
    Now,
    Received,
    Stalled,
    StopRequested,
    StorageChanged,
    TimePassed,
)
from .core.step import Core
from .deadlines import Deadlines
from .delivery import Delivery
from .departures import Departures
from .intake import WAITING, Intake
from .listener import REST_MS, Listener
from .listing import page_of_jobs
from .log import Log as EventLog
from .payloads import PayloadCache
from .peer import HOLD_BUDGET, HOLD_OVER, HOLD_TURN, Peer
from .poller import IN, Poller
from .questions import Questions
from .snapshots import Snapshots
from .storage import Storage
from .thread import HANDOVER_S, LoopRunner

STALL_MS = 100
"""Later than this, the loop did not run when it should have: shorter than any sensible lease."""

TICK_MS = limits.SECOND_MS

ROUNDS_MAX = 16
"""Rounds in a row without a turn for other tasks, of which the signals are one."""

VISITS_MAX = 4
"""Visits to the journal that one round waits for: a look-up, the commit of what it led to, and the same
for a text peer's next line."""

_WITH_NAME = (Hello, work.Pool)
"""Messages that say who a peer is."""

FINISH_MS = 1000
"""After an error of a peer, or at the end of the broker: how long what is unanswered may still take."""


class Driver:
    """See the module. `run` until `stop` was called and all is said, or the storage broke."""

    def __init__(
        self,
        core: Core,
        runner: LoopRunner,
        storage: Storage,
        *,
        clock: Clock,
        log: EventLog,
        snapshots: str,
        about: Mapping[str, Any],
    ) -> None:
        self._core = core
        self._runner = runner
        self._storage = storage
        self._clock = clock
        self._log = log
        self._about = about
        self.poller = Poller()
        self._departures = Departures(self.step, log, core.is_missed)
        self.deadlines = Deadlines()
        self._intake = Intake(
            self.deadlines,
            round_ms=lambda: self.now.mono_ms,
            clock_ms=lambda: clock().mono_ms,
            request=self._request,
            said=self._said_nothing_legal,
            ended=self._end_if_over,
            is_stuck=lambda: self.committer.is_stuck,
            looking_up=lambda: self.questions.waiting_count,
        )
        self._delivery = Delivery(
            self._departures,
            log,
            round_ms=lambda: self.now.mono_ms,
            answered=self._intake.answered,
            is_over=self._end_if_over,
        )
        self._peers = self._delivery.peers
        self.committer = Committer(
            runner,
            core.take_changes,
            self._delivery.release,
            self,
            make_room=storage.make_room,
            cache=PayloadCache(limits.PAYLOAD_CACHE_BYTES),
        )
        self._times = BatchTimes(self.committer)
        self.questions = Questions(core, self.committer, self._perform, self._intake.looked_up)
        self._snapshots = Snapshots(snapshots, self.committer, runner, self.commit_failed)
        self._listener: Listener | None = None
        self._named: dict[tuple[Any, ...], Peer] = {}
        self._over_budget: list[Peer] = []
        self._batch_bytes = 0
        self._failure: BaseException | None = None
        self._scope, self.now = trio.CancelScope(), clock()
        self._awake_by_ms = self._core_by_ms = self._chores_by_ms = self.now.mono_ms
        self._has_to_hear_all = False
        self._waited_for: int = 0
        self._stop_wanted = False
        self._stop_by_ms: int | None = None
        self._chores: Callable[[Now], int] = lambda _: limits.WALL_RECHECK_MS
        self._tick_by_ms = 0
        self.poller.add(runner.fileno(), IN, lambda _: runner.drain_wakeup())

    def serve(self, listener: Listener, chores: Callable[[Now], int]) -> None:
        """Accept from `listener`; `chores` says in how many ms it wants to be called again."""
        self._listener = listener
        self._chores = chores

    # --- the loop --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until the end. Raises what broke the storage."""
        delay_ms = self._round()
        while delay_ms is not None:
            # A scope outlives many waits: arming a deadline anew in each round costs more than the
            # few rounds too many that come of leaving one that is early.
            with trio.CancelScope(deadline=_in(delay_ms)) as self._scope:
                while delay_ms is not None:
                    self._scope.deadline = min(self._scope.deadline, _in(delay_ms))
                    await trio.lowlevel.wait_readable(self.poller.fileno())
                    delay_ms = self._rounds()
            if self._scope.cancelled_caught:
                delay_ms = self._rounds()

    def _rounds(self) -> int | None:
        """Rounds as long as somebody is ready, up to a bound after which other tasks have their turn."""
        delay_ms = self._round()
        for _ in range(ROUNDS_MAX):
            # With work in flight the journal thread must get the interpreter, see `YieldToJournal`.
            if delay_ms is None or self._runner.is_busy:
                break
            if not (self._intake.has_turns or self.poller.look()):
                break
            delay_ms = self._round()
        return delay_ms

    def stop(self) -> None:
        """End soon: refuse what waits, store and send what was decided, close."""
        self._stop_wanted = True
        self._scope.cancel()

    def _round(self) -> int | None:
        """One round; in how many milliseconds the next is due, None when it is over."""
        self._look_at_clock()
        self._intake.begin_round()
        if self._has_to_hear_all:
            self._has_to_hear_all = False
            self.poller.poll_all()
        self.poller.gather(lambda: self._intake.has_room)
        self._accept()
        self._intake.take_turns()
        if self._stop_wanted and self._stop_by_ms is None:
            self._begin_stop()
        started_ms = self.now.mono_ms
        if self._chores_by_ms <= started_ms:
            self._chores_by_ms = started_ms + min(self._chores(self.now), self._watch_peers())
        self._departures.pass_time(started_ms)
        if self._core_by_ms <= started_ms and not self._times.look(started_ms):
            self.step(TimePassed())
        visits = self._runner.submitted
        self._settle()
        if self._runner.submitted != visits:
            self._chores_by_ms = min(self._chores_by_ms, started_ms + CHECKPOINT_MS)
        self.questions.trim()
        if self._failure is not None:
            raise self._failure
        if self._is_over():
            return None
        core_ms = self._core_ms()
        self._core_by_ms = self.now.mono_ms + core_ms
        delay_ms = max(min(self._chores_by_ms - started_ms, core_ms, self._delay_ms()), 0)
        self._awake_by_ms = self.now.mono_ms + delay_ms
        return delay_ms

    def _watch_peers(self) -> int:
        """Deadlines of connections, and the socket's place; in how many milliseconds again."""
        mono_ms = self.now.mono_ms
        if self._tick_by_ms <= mono_ms:
            self._tick_by_ms = mono_ms + TICK_MS
            for peer, code, text in self.deadlines.overdue(mono_ms):
                self._time_out(peer, code, text)
            for peer in self.deadlines.to_finish(mono_ms):
                self._end_if_over(peer)
            self._delivery.cut_off_overdue()
            if self._listener is not None:
                self._listener.keep_in_place()
        return self._tick_by_ms - mono_ms

    def _core_ms(self) -> int:
        """In how many milliseconds the core is to be told of the time."""
        if self._times.is_held:
            # What is overdue stays so: it must not keep the loop awake.
            return limits.WALL_RECHECK_MS
        return self._core.next_deadline(self.now)

    def _delay_ms(self) -> int:
        if self._intake.has_turns:
            return 0
        mono_ms = self.now.mono_ms
        delay_ms = self._times.delay_ms(mono_ms, self._departures.delay_ms(mono_ms))
        if self._listener is not None and self._listener.rests:
            delay_ms = min(delay_ms, REST_MS)
        if self._stop_by_ms is not None:
            delay_ms = min(delay_ms, self._stop_by_ms - self.now.mono_ms)
        return delay_ms

    def _look_at_clock(self) -> None:
        self.now = self._clock()
        self._notice_stall()
        self._awake_by_ms = self.now.mono_ms

    def _notice_stall(self) -> None:
        late_ms = self.now.mono_ms - self._awake_by_ms
        if late_ms < STALL_MS:
            return
        self._has_to_hear_all = True
        if not self._times.is_full:
            # Else it is a part of what `commit_stored` will tell.
            self.step(Stalled(late_ms))

    def _settle(self) -> None:
        """Hand over what was decided, and bring out what is stored."""
        self._hand_over()
        for _ in range(VISITS_MAX):
            if self._runner.submitted != self._waited_for:
                self._waited_for = self._runner.submitted
                self._runner.wait(HANDOVER_S)
                self._look_at_clock()
            self._runner.collect()
            self._intake.hear_more(self._delivery.take_resumed())
            self._hand_over()
            if self._runner.submitted == self._waited_for:
                break
        self._intake.defer(self._delivery.take_resumed())

    def _hand_over(self) -> None:
        self.questions.ask()
        if self._stop_wanted or not self._times.may_wait(self.now.mono_ms):
            self.committer.flush()
        if not self.committer.is_open and self._batch_bytes:
            self._batch_bytes = 0
            self._read_on()
        self._delivery.flush()

    def _read_on(self) -> None:
        """Nobody has to wait any longer because of what he sent into the open batch."""
        over_budget, self._over_budget = self._over_budget, []
        for peer in over_budget:
            peer.unhold(HOLD_BUDGET)

    # --- steps and effects -------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        """One event through the core; what it wants done waits for the commit."""
        effects = self._core.step(event, self.now)
        # A push never leaves at once, and is every second effect there is.
        self.committer.add([each for each in effects if type(each) is Push or not self._leaves_now(each)])

    def _leaves_now(self, effect: Effect) -> bool:
        if isinstance(effect, Answer):
            if type(effect.message) is StatusReport:
                self._complete_status(effect)
        elif isinstance(effect, LookAgain):
            peer = self._peers.get(effect.event.connection)
            if peer is not None:
                self.questions.again(peer, effect.event)
            return True
        elif not isinstance(effect, Refuse):
            return False
        if effect.now:
            self._delivery.deliver(effect, {})
        return effect.now

    def _complete_status(self, answer: Answer) -> None:
        listener = self._listener.statistics() if self._listener is not None else {}
        shell = {"storage": self._storage.statistics(), **listener, **self._about}
        answer.message = StatusReport({**answer.message[0], **shell})
        # A batch that does not fit on the disk may hold up everything for hours. Whoever asks what is
        # wrong must be told, although counts may then be ahead of the disk.
        answer.now = answer.now or self.committer.is_stuck

    # --- peers -------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        listener = self._listener
        if listener is None:
            return
        listener.rested(self.now.mono_ms)
        if listener.is_pending:
            for peer in listener.accept(self.now.mono_ms):
                self._peers[peer.id] = peer

    def received(self, peer: Peer) -> None:
        """A peer was read from, or ended. Called by the peer itself."""
        if not self._departures.settled(peer):
            self._intake.hear(peer)

    def _said_nothing_legal(self, peer: Peer, event: Refused | Ended) -> None:
        if isinstance(event, Ended):
            self._say_last(peer, event.reason, event.data)
        else:
            self._delivery.say(peer, event.data)

    def _say_last(self, peer: Peer, reason: str, error: bytes) -> None:
        """Nothing more is taken from a peer. An error is told once all before it is answered, or late."""
        peer.over, peer.reason, peer.last_words = True, reason, error
        if error:
            peer.finish_by_ms = self.now.mono_ms + FINISH_MS
        peer.hold(HOLD_OVER)

    def _request(self, peer: Peer, request: Request) -> None:
        number, _, message = request
        if type(message) is not work.Progress:
            # That one is never answered.
            peer.unanswered += 1
        if not peer.introduced:
            peer.introduced = True
            credentials = peer.credentials
            is_text = bool(peer.connection.is_text)
            self.step(Connected(peer.id, credentials.uid, credentials.pid, is_text))
        if isinstance(message, _WITH_NAME):
            self._take_name(peer, message)
        self.questions.admit(peer, number, message)

    def _take_name(self, peer: Peer, message: Hello | work.Pool) -> None:
        """A worker or supervisor that came back: what its older connection holds is heard first."""
        key = tuple(message.identity) if isinstance(message, Hello) else (message.ticket,)
        if not key:
            return
        older = self._named.get(key)
        if older is not None:
            self._intake.hear_out(older)
        self._departures.returned(key)
        self._named[key] = peer
        peer.key = key

    def _perform(self, peer: Peer, event: Received) -> None:
        """A message whose turn has come."""
        message, request = event.message, event.request
        if isinstance(message, Enqueue):
            self._count(peer, len(message.payload))
            if self._storage.take(len(message.payload), self.now):
                self.step(StorageChanged(True))
            self.step(event)
        elif isinstance(message, Jobs):
            self.committer.look(
                lambda journal: page_of_jobs(journal, message),
                lambda page: self._delivery.reply(peer, request, page),
                may_pass=True,
            )
        elif isinstance(message, Snapshot):
            self._snapshots.write(message.name, lambda reply: self._delivery.reply(peer, request, reply))
        else:
            self.step(event)
            if type(message) in WAITING:
                self._intake.waits(peer, request)

    def _count(self, peer: Peer, payload_bytes: int) -> None:
        self._batch_bytes += payload_bytes
        if self._batch_bytes > limits.BATCH_BYTES_MAX and not self._storage.is_full:
            peer.hold(HOLD_BUDGET)
            self._over_budget.append(peer)

    def _time_out(self, peer: Peer, code: str, text: str) -> None:
        """A deadline of the connection itself has passed."""
        self._say_last(peer, code, peer.connection.refuse(UNANSWERABLE, Refusal(code, text)))
        self._end_if_over(peer)

    def _end_if_over(self, peer: Peer) -> None:
        """End a connection once nothing of it is unhandled, nor on its way to somebody who listens."""
        if peer.queued or peer.holds & HOLD_TURN or peer.id not in self._peers:
            return
        is_late = 0 < peer.finish_by_ms <= self.now.mono_ms
        if peer.gone:
            self.end(peer)
        elif peer.broken:
            # It may have said something before it ended, which counts.
            peer.lose()
        elif peer.over and (is_late or not peer.unanswered):
            if peer.last_words:
                last_words, peer.last_words = peer.last_words, b""
                self._delivery.say(peer, last_words)
            elif is_late or peer.is_flushed:
                self.end(peer)
        if peer.finish_by_ms and peer.id in self._peers:
            self.deadlines.finishing(peer)

    def end(self, peer: Peer) -> None:
        """The connection is over: free its place and let the core know how it ended."""
        if self._peers.pop(peer.id, None) is None:
            return
        if self._listener is not None:
            self._listener.left(peer)
        self._intake.left(peer)
        if peer.key is not None and self._named.get(peer.key) is peer:
            del self._named[peer.key]
        self._departures.add(peer, self.now.mono_ms)

    # --- storage ---------------------------------------------------------------------------------------

    def commit_begun(self) -> None:
        """A batch is on its way to the disk."""
        self._times.begun(self.now.mono_ms)

    def commit_full(self) -> None:
        """The committer holds a batch that does not fit."""
        self._times.found_full()
        # The open batch may stay so for hours, and takes no payloads meanwhile.
        self._read_on()
        if self._storage.became_full(self.now):
            self.step(StorageChanged(True))

    def commit_stored(self) -> None:
        """What a batch held back begins to age now. Whether a full storage still is, the next survey says."""
        was_full = self._times.is_full
        held_ms = self._times.stored(self.now.mono_ms)
        if was_full:
            self._log.event("batch_stored_after_all", held_ms=held_ms)
            self.step(Stalled(held_ms))
        if held_ms:
            self.step(HeldUp(self.committer.pushes_held()))

    def commit_failed(self, error: BaseException) -> None:
        """The storage broke: nothing is said to anybody any more."""
        # The first one is the cause: what comes after it only meets a journal that is broken.
        self._failure = self._failure or error

    # --- the end ---------------------------------------------------------------------------------------

    def _begin_stop(self) -> None:
        self._stop_by_ms = self.now.mono_ms + FINISH_MS
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._snapshots.stop()
        self.step(StopRequested())

    def _is_over(self) -> bool:
        if self._stop_by_ms is None:
            return False
        is_said = self.committer.is_idle and all(peer.is_flushed for peer in self._peers.values())
        return (is_said and not self._runner.is_busy) or self._stop_by_ms <= self.now.mono_ms

    def close(self) -> None:
        """Close every connection. Nothing is told to anybody: workers keep their jobs and come back."""
        if self._listener is not None:
            self._listener.close()
        for peer in [*self._peers.values(), *self._departures.peers()]:
            peer.close()
        self._peers.clear()
        self.poller.close()


def _in(delay_ms: int) -> float:
    return trio.current_time() + delay_ms / 1000
