"""The trace of a real broker: what it asked of the disk, what it was asked, and what it told, in one order.

Written down at the gate, so that nothing of it depends on what the broker says. Files are those of the
journal; operations are those of a tape (`tape.py`). A sync counts from the moment it was over, an answer
from the moment the kernel was given its bytes, a request from before it was sent.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stoker.proto import codec
from stoker.proto.frames import FrameReader
from stoker.proto.messages import ANSWER, Enqueue, Message
from stoker.proto.work import Ack, Nack

from .account import Account
from .gate import CARRY_OUT, PASS, SYNCS, Call, Give, Ruling
from .recording import NAME
from .tape import Cut, Deleted, Operation, Replaced, Synced, Wrote

LOG = f"{NAME}-wal"


class Asked(NamedTuple):
    """A request was about to be sent."""

    number: int
    message: Message


class Told(NamedTuple):
    """The broker sent this frame."""

    array: list[Any]


Event = Operation | Asked | Told


class Trace:
    """The handler of a gate, and what it has seen. `swallows_syncs`: the log is never synced for it."""

    def __init__(self, data: Path, *, swallows_syncs: bool = False) -> None:
        self.events: list[Event] = []
        self._data = data
        self._swallows_syncs = swallows_syncs
        self._syncing: set[str] = set()
        self._readers: dict[int, FrameReader] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A broker starts on what is there, all of which is taken for durable the first time."""
        self._readers.clear()
        if not self.events:
            files = {path.name: path.read_bytes() for path in self._data.glob(f"{NAME}*")}
            self.events.append(Replaced(files))

    def __call__(self, call: Call) -> Ruling:
        path = Path(call.path())
        with self._lock:
            if path.parent == self._data and path.name.startswith(NAME):
                return self._of_file(call, path.name)
            if call.name == "sendto" and path.name.startswith("socket:"):
                self._sent(call)
        return PASS

    def _of_file(self, call: Call, file: str) -> Ruling:
        if call.name in SYNCS:
            if self._swallows_syncs and file == LOG:
                return Give(0)
            self._syncing.add(file)
            return CARRY_OUT
        # SQLite writes a file and syncs it by turns. So what a sync covers is all that was written before.
        assert file not in self._syncing or call.name == "openat", f"{file} changes while it is synced"
        if call.name == "pwrite64":
            self.events.append(Wrote(file, call.arguments[3], call.data()))
        elif call.name == "ftruncate":
            self.events.append(Cut(file, call.arguments[1]))
        elif call.name.startswith("unlink"):
            self.events.append(Deleted(file, synced=False))
        return PASS

    def carried_out(self, call: Call) -> None:
        """A sync is over."""
        with self._lock:
            file = Path(call.path()).name
            if file in self._syncing:
                self._syncing.remove(file)
                self.events.append(Synced(file))

    def _sent(self, call: Call) -> None:
        # A peer that reads at once takes all of it, so the frames are whole.
        reader = self._readers.setdefault(call.arguments[0], FrameReader())
        reader.feed(call.data())
        while (body := reader.next_frame()) is not None:
            self.events.append(Told(codec.decode(body)))

    def asked(self, number: int, message: Message) -> None:
        """A peer is about to send this."""
        with self._lock:
            self.events.append(Asked(number, message))


class TracingAccount(Account):
    """The account of peers whose broker is traced."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def ask(self, number: int, message: Message) -> None:
        self._trace.asked(number, message)
        super().ask(number, message)


class Order(NamedTuple):
    """What became of the order of commit, sync and answer."""

    answers: int
    faults: list[str]


def order_of(events: Sequence[Event]) -> Order:
    """Whether each answer left after what it confirms had been written to the log and synced there.

    Of those requests of which something can be recognised in the log: the id of a job, its result, the
    reason of its failure. A repeat has nothing to write: what the first one wrote counts.
    """
    asked: dict[int, bytes] = {}
    first: dict[bytes, int] = {}
    answers, faults = 0, list[str]()
    for place, event in enumerate(events):
        if isinstance(event, Asked):
            mark = asked[event.number] = mark_of(event.message)
            first.setdefault(mark, place)
        elif isinstance(event, Told) and event.array[0] == ANSWER and asked.get(event.array[1]):
            mark = asked[event.array[1]]
            answers += 1
            if not _is_synced(events[first[mark] : place], mark):
                faults.append(f"{mark!r} was answered before it was synced")
    return Order(answers, faults)


def mark_of(message: Message) -> bytes:
    """What of a request can be recognised in the log; empty if nothing can."""
    if isinstance(message, Enqueue):
        return message.id.encode()
    if isinstance(message, Ack):
        return message.result or b""
    return message.reason.encode() if isinstance(message, Nack) else b""


def _is_synced(events: Sequence[Event], mark: bytes) -> bool:
    is_written = False
    for event in events:
        if isinstance(event, Wrote) and event.file == LOG:
            is_written = is_written or mark in event.data
        elif is_written and event == Synced(LOG):
            return True
    return False
