"""Simulated clients and an operator: those who ask for things, and lose connections in between.

A client pipelines enqueues. Whatever has no answer when its connection ends is unknown, so it asks
again with the same id until it has one. Now and then it repeats an id that was answered, with the
same body or with another.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from stoker.proto import limits, messages
from stoker.proto.messages import Message

from .. import history as h
from .broker import Broker
from .host import Host, Process
from .wire import Line

QUEUES = ("mail", "reports", None)
KINDS = ("send", "digest", "poison", "unheard")
KIND_WEIGHTS = (60, 30, 4, 6)
HARMLESS_WEIGHTS = (60, 30, 0, 6)
RECONNECT_MS_MAX = 600
RETRY_MS = 1000
LOOK_AGAIN_MS = 10_000

REPEATED_MS = limits.ID_KEPT_LIBRARY_MS // 3
"""So long after an answer a client may ask the same again; well within what the broker promises."""

RETRIED = frozenset({"storage_full", "shutting_down"})


class Caller:
    """A process with a connection that it makes anew whenever it ends."""

    def __init__(self, host: Host, broker: Broker, name: str) -> None:
        self._host = host
        self._broker = broker
        self.process = Process(host, name)
        self._wire: Line | None = None
        self._connect()

    def _connect(self) -> None:
        self._wire = self._broker.accept(self)
        if self._wire is None:
            self._come_back()
        else:
            self._connected()

    def _connected(self) -> None:
        """For those who have something to repeat."""

    def _come_back(self) -> None:
        self.process.after(self._host.heap.between(0, RECONNECT_MS_MAX), self._connect)

    @property
    def unanswered(self) -> list[Message]:
        """What was asked on the present connection and has no answer."""
        return [] if self._wire is None else self._wire.unanswered

    def cut(self) -> None:
        """The connection breaks."""
        if self._wire is not None:
            self._wire.close()
            self.cut_off()

    def cut_off(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
            self._come_back()

    def pushed(self, message: Message) -> None:
        raise AssertionError(f"{self.process.name} was pushed {message}")

    def replied(self, asked: Message, answer: Message) -> None:
        """For those who look at answers."""

    def _send(self, message: Message) -> None:
        if self._wire is not None:
            self._wire.send(message)


class SimClient(Caller):
    """Enqueues so many jobs, then is content."""

    def __init__(self, host: Host, broker: Broker, name: str, job_count: int, pause_ms: int) -> None:
        self._unknown: dict[str, messages.Enqueue] = {}
        self._known: deque[tuple[int, messages.Enqueue]] = deque()
        """What was answered lately, and when on the boot clock."""
        self.left = job_count
        """So many jobs it has still to ask for. They are numbered down."""
        self._pause_ms = pause_ms
        super().__init__(host, broker, name)
        self._go_on()

    @property
    def is_content(self) -> bool:
        """Everything it wanted has its answer."""
        return not self.left and not self._unknown

    def _go_on(self) -> None:
        if self.left and self._wire is not None:
            for _ in range(min(self.left, self._host.heap.between(1, 4))):
                self.left -= 1
                self._ask(self._new())
            self._forget_old()
            if self._known and self._host.heap.happens(0.3):
                self._ask_again()
        if self.left:
            self.process.after(self._host.pause_ms(self._pause_ms), self._go_on)

    def _forget_old(self) -> None:
        """An id that the library made is the same job only as long as the broker remembers it."""
        since_ms = self._host.clock.now().boot_ms - REPEATED_MS
        while self._known and self._known[0][0] < since_ms:
            self._known.popleft()

    def _new(self) -> messages.Enqueue:
        heap = self._host.heap
        weights = HARMLESS_WEIGHTS if self._host.calm else KIND_WEIGHTS
        kind = heap.random.choices(KINDS, weights)[0]
        delays = heap.happens(0.2)
        wall_ms = self._host.clock.now().wall_ms
        return messages.Enqueue(
            id=f"{self.process.name}-{self.left}",
            kind=kind,
            payload=bytes(heap.between(0, 200)),
            fresh=heap.happens(0.5),
            queue=heap.random.choice(QUEUES),
            priority=heap.random.choice((None, -1, 0, 5)),
            delay_ms=self._host.span_ms(1, 5000) if delays else None,
            run_at_ms=wall_ms + self._host.span_ms(-5000, 5000) if not delays and heap.happens(0.1) else None,
            expires_ms=self._host.span_ms(1, 60_000) if heap.happens(0.1) else None,
            attempts_max=heap.random.choice((None, 1, 2, 4)),
            wait_ms=heap.random.choice((None, 3000)),
        )

    def _ask(self, message: messages.Enqueue) -> None:
        self._unknown[message.id] = message
        self._send(message)
        if self._host.heap.happens(0.2):
            self._send(messages.Wait(message.id, self._host.heap.random.choice((None, 500))))

    def _ask_again(self) -> None:
        """Something that was answered: the same, or the same id with another body."""
        message = self._host.heap.random.choice(self._known)[1]._replace(fresh=False)
        if self._host.heap.happens(0.5):
            message = message._replace(payload=b"another body")
        self._send(message)

    def _connected(self) -> None:
        for id, message in self._unknown.items():
            # It may have been stored: only the first try can say that the id is fresh.
            self._unknown[id] = message._replace(fresh=False)
            self._send(self._unknown[id])

    def replied(self, asked: Message, answer: Message) -> None:
        if isinstance(asked, messages.Enqueue):
            code = answer.code if isinstance(answer, messages.Refusal) else ""
            number = answer.number if isinstance(answer, messages.Enqueued) else None
            body = tuple(asked._replace(fresh=False, wait_ms=None))
            self._host.history.add(h.Enqueued(self._host.now_ms, asked.id, body, asked.fresh, number, code))
            self._settle(asked, code)

    def _settle(self, asked: messages.Enqueue, code: str) -> None:
        if self._unknown.get(asked.id) != asked:
            return
        if code in RETRIED:
            # With these the broker says that it did not even look: the same request again, later.
            self.process.after(RETRY_MS, lambda: self._send(asked))
            return
        del self._unknown[asked.id]
        if not code:
            self._known.append((self._host.clock.now().boot_ms, asked))


class SimOperator(Caller):
    """Cancels, kicks, drops, pauses and drains at random; stops when the faults do."""

    def __init__(
        self, host: Host, broker: Broker, name: str, some_id: Callable[[], str], pause_ms: int
    ) -> None:
        self._some_id = some_id
        self._pause_ms = pause_ms
        super().__init__(host, broker, name)
        self._act()

    def _act(self) -> None:
        if self._host.calm:
            return
        self._send(self._any_request())
        self.process.after(self._host.pause_ms(self._pause_ms), self._act)

    def _any_request(self) -> Message:
        random = self._host.heap.random
        id, queue = self._some_id(), random.choice(("mail", "reports", "default"))
        asks: list[tuple[int, Any]] = [
            (6, messages.Cancel(id)),
            (6, messages.Kick(id)),
            (3, messages.Kick(queue=queue, limit=3)),
            (3, messages.Drop(id)),
            (1, messages.Drop(queue=queue, limit=2)),
            (1, messages.Pause(random.choice((queue, None)))),
            (6, messages.Resume(queue)),
            (4, messages.Resume()),
            (1, messages.Drain(2000)),
            (4, messages.Show(id, payload=True)),
            (4, messages.Why(id)),
            (2, messages.Wait(id, 1000)),
            (2, messages.Status()),
        ]
        ask: Message = random.choices([ask for _, ask in asks], [weight for weight, _ in asks])[0]
        return ask

    def set_right(self) -> None:
        """End every pause and drain, and look again later.

        What it asked for on an older connection may be heard only then, so a pause may come after this.
        """
        self._end_pauses()
        self.process.after(LOOK_AGAIN_MS, self.set_right)

    def _end_pauses(self) -> None:
        for queue in (None, "mail", "reports", "default"):
            self._send(messages.Resume(queue))

    def _connected(self) -> None:
        if self._host.calm:
            self._end_pauses()
