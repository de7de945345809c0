"""The fixed script: sixty requests of every kind, by a client and a raw worker, one after the other.

Always the same, so that the n-th system call of the broker means the same in every run. A script that lost
its broker goes on with another one on the same files: the worker says what it holds, whatever has no answer
is asked again, and all jobs are brought to an end. Then the whole is for the oracle to judge.
"""

import select
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

from stoker.proto import messages as m
from stoker.proto import work as w
from stoker.proto.messages import Message
from stoker.proto.model import FINAL_STATES, Role
from stoker.worker.process import identity

from .. import history as h
from .account import WORKER, Account, now_ms
from .speaker import DEADLINE_S, HaltedError, Speaker

KIND = "kind"
FLOOD_KIND = "flooding"
"""One that nobody knows: its jobs wait for ever."""
FLOOD_JOBS = 240
LATER_MS = 3_600_000
_NONCE = "script-worker"


class Script:
    """One client and one worker. The script may be played more than once, each time under another name."""

    def __init__(self, path: str, account: Account, patience_s: float = DEADLINE_S) -> None:
        """`patience_s`: how long it waits for one frame before it is halted."""
        self._path = path
        self._patience_s = patience_s
        self._numbers = count(1)
        self._account = account
        self._name = ""
        self._rooms = 0
        self._held: w.Job | None = None
        self._ended: Message | None = None
        self._client: Speaker | None = None
        self._worker: Speaker | None = None

    # --- the sixty -----------------------------------------------------------------------------------------

    def play(self, name: str = "a") -> None:
        """All of it, under ids that begin with `name`. LostError if the broker dies meanwhile."""
        self._name = name
        self._client = self._client or self._speaker()
        self._ask(*(self._enqueue(number) for number in range(1, 9)))
        self._ask(self._enqueue(1), self._enqueue(1, payload=b"another"))
        self._ask(self._enqueue(21, delay_ms=LATER_MS))
        self._ask(self._enqueue(22, delay_ms=LATER_MS))
        self._ask(m.Pause(f"{name}-slow"))
        self._ask(self._enqueue(31, queue=f"{name}-slow"), self._enqueue(32, queue=f"{name}-slow"))
        self._join()
        self._finish_first_jobs()
        self._operate()
        self._run_what_comes()

    def _finish_first_jobs(self) -> None:
        self._end(self._take(), _ack)
        # Failed, and retried at once; then given back; then without a retry.
        self._end(self._take(), lambda job: w.Nack(job.token, "error", f"failed {job.id}", after_ms=0))
        self._end(self._take(), _ack)
        self._end(self._take(), lambda job: w.Release(job.token, "released"))
        self._end(self._take(), _ack)
        dead = self._end(self._take(), lambda job: w.Nack(job.token, "permanent", f"dead {job.id}"))
        dropped = self._end(self._take(), lambda job: w.Nack(job.token, "permanent", f"dead {job.id}"))
        self._ask(m.Kick(dead.id))
        self._ask(m.Drop(dropped.id))
        job = self._take()
        self._say_as_worker(w.Heartbeat([job.token]))
        self._end(job, lambda job: w.Release(job.token, "not_started"))
        self._end(self._take(), _ack)

    def _operate(self) -> None:
        self._ask(m.Cancel(self._id(21)))
        self._ask(m.Snapshot(f"{self._name}-copy"))
        self._end(self._take(), _ack)
        self._end(self._take(), _ack)
        self._end(self._take(), _ack)
        self._ask(m.Resume(f"{self._name}-slow"))
        self._end(self._take(), _ack)
        self._end(self._take(), _ack)
        self._ask(m.Pause())
        self._ask(self._enqueue(9))
        self._ask(m.Resume())
        self._end(self._take(), _ack)

    def _run_what_comes(self) -> None:
        # The worker is idle: each is leased with the commit that stores it, or with the ack before.
        self._ask(*(self._enqueue(number, fresh=True) for number in range(10, 18)))
        for _ in range(10, 18):
            self._end(self._take(), _ack)
        self._ask(m.Wait(self._id(10)), m.Show(self._id(11)))
        self._ask(m.Cancel(self._id(22)))
        self._ask(m.Status())

    def flood(self) -> None:
        """Beyond the sixty: hundreds of jobs in one piece, as a client's bulk enqueue sends them."""
        ids = [f"{self._name}-bulk-{number:03}" for number in range(FLOOD_JOBS)]
        self._ask(*(m.Enqueue(id, FLOOD_KIND, b"", queue=f"{self._name}-bulk") for id in ids))

    # --- after a loss ----------------------------------------------------------------------------------------

    def lose(self) -> None:
        """The broker has died: hear what it still said, and note that nothing can be heard any more."""
        for speaker in (self._client, self._worker):
            if speaker is not None:
                speaker.hear_out()
                speaker.close()
        if self._worker is not None:
            self._look_at_what_came(self._worker)
            self._account.note(h.Silent(now_ms(), WORKER))
        self._account.note(h.Crashed(now_ms()))
        self._client = self._worker = None

    def _look_at_what_came(self, worker: Speaker) -> None:
        """A job that was pushed and not looked at yet is the worker's all the same."""
        while worker.has_jobs:
            self._held = worker.take()
            self._ended = None

    def come_back(self) -> None:
        """Connect again, say what is held, and ask again for whatever has no answer."""
        unanswered, self._account.unanswered = self._account.unanswered, {}
        self._client = self._speaker()
        self._join()
        for message in unanswered.values():
            if isinstance(message, m.Enqueue):
                # On a full disk it is refused, whether or not it was stored before.
                with suppress(HaltedError):
                    self._ask(message._replace(fresh=False))
            elif not isinstance(message, w.Ack | w.Nack | w.Release | w.Heartbeat | m.Hello):
                self._ask(message)
        if self._ended is not None:
            self._say_as_worker(self._ended)

    def go_on(self) -> None:
        """After it was halted, and what halted it is over: hear what is still to be answered."""
        for speaker in (self._client, self._worker):
            while speaker is not None and self._is_owed(speaker):
                speaker.hear()
        self._held = None if self._ended is not None else self._held
        self._ended = None
        self._client = self._client or self._speaker()
        self._join()

    def _is_owed(self, speaker: Speaker) -> bool:
        return bool(speaker.numbers & self._account.unanswered.keys())

    def finish(self) -> None:
        """Bring every job to its end, and the two sides to theirs."""
        worker, client = self._both()
        queues = self._status()["queues"]
        self._ask(m.Resume(), *(m.Resume(queue) for queue in queues))
        self._ask(*(m.Cancel(job["id"]) for job in self._jobs() if job["state"] == "scheduled"))
        if self._held is not None and self._ended is None:
            self._end(self._held, _ack)
        waiting = set(client.say(*(m.Wait(job["id"]) for job in self._jobs() if not _is_final(job))))
        while waiting & self._account.unanswered.keys():
            while worker.has_jobs:
                self._end(worker.take(), _ack)
            readable, _, _ = select.select([worker, client], [], [], 0 if worker.has_jobs else 20)
            assert readable or worker.has_jobs, f"jobs that never end: {self._jobs()}"
            for speaker in readable:
                speaker.hear()

    def has_room(self) -> bool:
        """Whether a job is taken. HaltedError, if it is not for want of space."""
        assert self._client is not None
        self._rooms += 1
        self._ask(m.Enqueue(f"room-{self._rooms}", KIND, b"", queue="room"))
        return True

    def counts(self) -> dict[tuple[str, str], int]:
        """What the broker counts by queue and state."""
        states = ("scheduled", "ready", "leased", "done", "dead", "cancelled")
        queues = self._status()["queues"].items()
        return {(name, state): queue[state] for name, queue in queues for state in states if queue[state]}

    def close(self) -> None:
        """End both connections."""
        for speaker in (self._client, self._worker):
            if speaker is not None:
                speaker.close()

    # --- both sides ------------------------------------------------------------------------------------------

    def _speaker(self) -> Speaker:
        return Speaker(self._path, self._numbers, self._account, self._patience_s)

    def _both(self) -> tuple[Speaker, Speaker]:
        assert self._worker is not None
        assert self._client is not None
        return self._worker, self._client

    def _ask(self, *said: Message) -> list[list[Any]]:
        assert self._client is not None
        return self._client.ask(*said)

    def _say_as_worker(self, message: Message) -> list[Any]:
        assert self._worker is not None
        return self._worker.ask(message)[0]

    def _status(self) -> dict[str, Any]:
        status: dict[str, Any] = self._ask(m.Status())[0][2]
        return status

    def _jobs(self) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = self._ask(m.Jobs(limit=1000))[0][2]
        return jobs

    def _join(self) -> None:
        if self._worker is not None:
            return
        self._worker = self._speaker()
        held: list[list[Any]] = []
        if self._held is not None:
            held = [[*self._held.token, "running" if self._ended is None else "finished"]]
        hello = m.Hello(1, Role.WORK, "script", identity(_NONCE), b"", [KIND], 1, held)
        welcome = m.Welcome(*self._say_as_worker(hello)[2:])
        self._account.note(h.Heard(now_ms(), WORKER))
        if self._held is not None and list(self._held.token) in [list(token) for token in welcome.lost]:
            self._held = None if self._ended is None else self._held

    def _take(self) -> w.Job:
        assert self._worker is not None
        self._held, self._ended = self._worker.take(), None
        return self._held

    def _end(self, job: w.Job, how: Callable[[w.Job], Message]) -> w.Job:
        self._ended = how(job)
        self._say_as_worker(self._ended)
        self._held = self._ended = None
        return job

    def _id(self, number: int) -> str:
        # Of one length: none is the beginning of another.
        return f"{self._name}-{number:02}"

    def _enqueue(self, number: int, *, payload: bytes | None = None, **options: Any) -> m.Enqueue:
        if payload is None:
            # Some fill pages of their own. The same for every repeat.
            payload = self._id(number).encode() * Random(number).choice((2, 20, 600, 2000))
        options.setdefault("queue", f"{self._name}-fast")
        return m.Enqueue(self._id(number), KIND, payload, **options)


def _ack(job: w.Job) -> w.Ack:
    return w.Ack(job.token, f"result of {job.id}".encode())


def _is_final(job: dict[str, Any]) -> bool:
    return job["state"] in FINAL_STATES
