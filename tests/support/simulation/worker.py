"""A simulated worker process: says hello, starts what it is handed, reports, and repeats itself.

It keeps a report until that is confirmed, beats for what it holds, comes back after every cut and
says what it has. What its handlers do is drawn for each attempt; once the faults have stopped, all
succeed. One with a single slot runs one after the other. Its start page holds the tokens of what runs and ran,
from the start of the handler until the report of it is confirmed.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from stoker.broker.core.workers import identity_text
from stoker.proto import limits, messages, work
from stoker.proto.messages import Message

from .. import history as h
from .broker import Broker
from .heap import BOOT_ID
from .host import Host, Process
from .wire import Line

Key = tuple[int, int]

POISON = "poison"
"""The kind whose handler ends its own process, always."""

FATES = ("ok", "error", "permanent", "release", "hang", "die", "own pace")
WEIGHTS = (60, 12, 2, 4, 3, 4, 15)

BUSY_MS_MAX = 400
RECONNECT_MS_MAX = 1500


class Attempt:
    """A job that a worker holds."""

    def __init__(self, job: work.Job) -> None:
        self.job = job
        self.phase = "unstarted"
        self.report: Message | None = None
        self.has_begun = False

    @property
    def token(self) -> Key:
        return (self.job.token[0], self.job.token[1])


class SimWorker:
    """See the module. A worker with a ticket has a supervisor, the others are raw."""

    def __init__(
        self,
        host: Host,
        broker: Broker,
        name: str,
        kinds: Sequence[str],
        *,
        slots: int = 1,
        ticket: bytes = b"",
        is_text: bool = False,
    ) -> None:
        self._host = host
        self._broker = broker
        self.process = Process(host, name)
        self.nonce = f"nonce-{self.process.pid}"
        self.identity = [BOOT_ID, 1, self.process.pid, self.process.pid, self.nonce]
        self.kinds, self.slots, self.ticket, self.is_text = list(kinds), slots, ticket, is_text
        self.held: dict[Key, Attempt] = {}
        self.page: Key | None = None
        """What began last, until that is confirmed."""
        self._waiting: deque[Attempt] = deque()
        self._runs: Attempt | None = None
        """Of one with a single slot: what runs, or is about to."""
        self._recalled: Key = (0, 0)
        self._wire: Line | None = None
        self._heartbeat_ms = 0
        broker.knows(identity_text(self.identity), self.process)
        self.process.on_death(self._died)
        host.history.add(h.Silent(host.now_ms, name))
        self._come_back()

    @property
    def name(self) -> str:
        return self.process.name

    def _after(self, low_ms: int, high_ms: int, action: Any) -> None:
        self.process.after(self._host.heap.between(low_ms, high_ms), action)

    # --- the connection ---------------------------------------------------------------------------------

    def _come_back(self) -> None:
        self._after(0, RECONNECT_MS_MAX, self._connect)

    def _connect(self) -> None:
        wire = self._broker.accept(self, is_text=self.is_text)
        if wire is None:
            self._come_back()
            return
        self._wire = wire
        held = [[*attempt.token, attempt.phase] for attempt in self.held.values()]
        hello = messages.Hello(
            limits.PROTOCOL_VERSION,
            "work",
            self.name,
            self.identity,
            self.ticket,
            self.kinds,
            self.slots,
            held,
            prefetch=limits.PREFETCH_MAX if self.ticket else 0,
        )
        wire.send(hello)
        for attempt in list(self.held.values()):
            if attempt.phase == "unstarted":
                # Saying so gives it back: it may be handed out again before the welcome is here.
                self._forget(attempt.token)

    def cut(self) -> None:
        """The connection breaks."""
        if self._wire is not None:
            self._wire.close()
            self.cut_off()

    def cut_off(self) -> None:
        self._host.history.add(h.Silent(self._host.now_ms, self.name))
        if self._wire is not None:
            self._wire.close()
            self._wire = None
            if self.is_text:
                # Leases of a text connection end with it: there is nothing to come back for.
                for attempt in list(self.held.values()):
                    self._abandon(attempt.token)
            self._come_back()

    def pushed(self, message: Message) -> None:
        assert isinstance(message, work.Job)
        attempt = Attempt(message)
        self.held[attempt.token] = attempt
        if self.slots == 1:
            self._waiting.append(attempt)
            self._begin_next()
        else:
            self._after(0, 30, lambda: self._start(attempt))

    def _begin_next(self) -> None:
        runs = self._runs
        if runs is not None and self.held.get(runs.token) is runs and runs.report is None:
            return
        self._runs = None
        while self._waiting and self._runs is None:
            first = self._waiting.popleft()
            if self.held.get(first.token) is first:
                self._runs = first
                self._after(0, 30, partial(self._start, first))

    def recall(self, through: Key) -> Key | None:
        """Nothing up to this token begins any more; what began last, if it is not confirmed."""
        self._recalled = max(self._recalled, through)
        return self.page

    def begun(self) -> list[list[int]]:
        """What the start page holds."""
        return [list(attempt.token) for attempt in self.held.values() if attempt.has_begun]

    def replied(self, asked: Message, answer: Message) -> None:
        if isinstance(answer, messages.Welcome):
            self._welcomed(answer)
        elif isinstance(asked, work.Ack | work.Nack | work.Release):
            self._confirmed(asked, answer)
        elif isinstance(answer, work.Wishes):
            for token in answer.cancel:
                self._stop_on_wish((token[0], token[1]))

    def _welcomed(self, answer: messages.Welcome) -> None:
        self._host.history.add(h.Heard(self._host.now_ms, self.name))
        for token in answer.lost:
            if self.ticket or self.is_text:
                self._abandon((token[0], token[1]))
            # Other raw workers are careless: they go on and report, and must be told `lease_lost`.
        for attempt in self.held.values():
            if attempt.report is not None:
                self._send(attempt.report)
        self._heartbeat_ms = answer.heartbeat_ms
        wire = self._wire
        self.process.after(self._heartbeat_ms, lambda: self._beat(wire))

    def _beat(self, wire: Line | None) -> None:
        if wire is not None and wire is self._wire:
            if not self.ticket:
                tokens = [list(token) for token in self.held]
                wire.send(work.Heartbeat(tokens=tokens))
            self.process.after(self._heartbeat_ms, lambda: self._beat(wire))

    def _send(self, message: Message) -> None:
        if self._wire is not None:
            self._wire.send(message)

    # --- attempts -----------------------------------------------------------------------------------------

    def _start(self, attempt: Attempt) -> None:
        if self.held.get(attempt.token) is not attempt:
            return
        is_odd = not self._host.calm and self._host.heap.happens(0.03)
        if is_odd or attempt.token <= self._recalled:
            self._report(attempt, work.Release(attempt.job.token, "not_started"))
            return
        attempt.phase, self.page, attempt.has_begun = "running", attempt.token, True
        job, now_ms = attempt.job, self._host.now_ms
        self._host.history.add(h.Started(now_ms, job.id, attempt.token, self.name, bool(self.ticket)))
        fate = self._fate(job)
        if fate == "hang":
            return
        busy_ms = BUSY_MS_MAX * (10 if fate == "own pace" else 1)
        self.process.after(self._host.span_ms(0, busy_ms), lambda: self._finish(attempt, fate))

    def _fate(self, job: work.Job) -> str:
        if job.kind == POISON:
            return "die"
        if self._host.calm:
            return "ok"
        return self._host.heap.random.choices(FATES, WEIGHTS)[0]

    def _finish(self, attempt: Attempt, fate: str) -> None:
        if self.held.get(attempt.token) is not attempt or attempt.report is not None:
            return
        token = attempt.job.token
        if fate == "die":
            self.process.die()
        elif fate in ("error", "permanent"):
            self._report(attempt, work.Nack(token, fate, "the handler raised"))
        elif fate == "release":
            reason = self._host.heap.random.choice(("released", "shutdown"))
            self._report(attempt, work.Release(token, reason))
        else:
            self._report(attempt, work.Ack(token, b"result"))

    def _report(self, attempt: Attempt, message: Message) -> None:
        if attempt.phase == "running":
            self._host.history.add(h.Stopped(self._host.now_ms, attempt.token))
        attempt.phase, attempt.report = "finished", message
        self._send(message)
        self._begin_next()

    def strike(self, token: Key, reason: str) -> None:
        """The private signal: the handler is told to end, if it is the one that runs."""
        attempt = self.held.get(token)
        if attempt is not None and attempt.phase == "running":
            outcome = "timeout" if reason == "timeout" else "cancelled"
            self._report(attempt, work.Nack(attempt.job.token, outcome, reason))

    def _stop_on_wish(self, token: Key) -> None:
        if self.ticket:
            return
        self.strike(token, "cancelled")

    def _confirmed(self, asked: Any, answer: Message) -> None:
        token = (asked.token[0], asked.token[1])
        if isinstance(answer, messages.Done):
            op = type(asked).__name__.lower()
            self._host.history.add(h.Confirmed(self._host.now_ms, self.name, token, op))
        self._forget(token)

    def _abandon(self, token: Key) -> None:
        attempt = self.held.get(token)
        if attempt is not None and attempt.phase == "running":
            self._host.history.add(h.Stopped(self._host.now_ms, token))
        self._forget(token)

    def _forget(self, token: Key) -> None:
        self.held.pop(token, None)
        if self.page == token:
            self.page = None
        self._begin_next()

    # --- faults -------------------------------------------------------------------------------------------

    def stop_for(self, stopped_ms: int) -> None:
        """SIGSTOP, and SIGCONT later."""
        if self.process.alive and not self.process.stopped:
            self._host.history.add(h.Silent(self._host.now_ms, self.name))
            self.process.stop()
            self._host.heap.after(stopped_ms, self._continue)

    def _continue(self) -> None:
        if self.process.alive and self.process.stopped:
            if self._wire is not None:
                self._host.history.add(h.Heard(self._host.now_ms, self.name))
            self.process.go_on()

    def _died(self) -> None:
        self._host.history.add(h.Died(self._host.now_ms, self.name))
        if not self.ticket:
            self.tree_gone()

    def tree_gone(self) -> None:
        """Nothing that its handlers started runs any more."""
        for attempt in self.held.values():
            if attempt.phase == "running":
                self._host.history.add(h.Stopped(self._host.now_ms, attempt.token))
        self.held.clear()
