"""A client's side of one connection, without I/O: requests become bytes, bytes become events.

`request` numbers a message and gives the bytes to send; `receive_data` takes what came, in any
chunking; `next_event` gives what it meant, or None when more bytes are needed:

    Answered   the answer to a request
    Refused    the broker understood a request and said no; the connection goes on
    Pushed     a message nobody asked for
    Ended      the connection is over; nothing comes after it

Answers are matched by request number and by nothing else, so their order does not matter. A caller
that no longer wants an answer says so with `forget`: when it comes after all it is dropped, and can
never be taken for the answer to a later request. An answer to a number that was never asked is a
fault of the peer and ends the connection, as does anything that is not a frame of the protocol.
Pushes that this session was not told of are ignored: a later release may have more.
"""

from collections.abc import Mapping
from typing import Any

from ..proto import codec, messages
from ..proto.errors import LocalProtocolError, RefusedError, RemoteProtocolError, StokerError, refusal
from ..proto.frames import FrameReader
from ..proto.messages import Message


class Answered:
    """The answer to request number `request`."""

    __slots__ = ("message", "request")

    def __init__(self, request: int, message: Message) -> None:
        self.request = request
        self.message = message


class Refused:
    """Request number `request` was refused; nothing was changed by it."""

    __slots__ = ("error", "request")

    def __init__(self, request: int, error: RefusedError) -> None:
        self.request = request
        self.error = error


class Pushed:
    """The broker sent a message of its own accord."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message = message


class Ended:
    """The connection is over. `error` is a RefusedError if the broker said why, None at a plain end."""

    __slots__ = ("error",)

    def __init__(self, error: StokerError | None) -> None:
        self.error = error


Event = Answered | Refused | Pushed | Ended


class Session:
    """See the module. `ops` are the requests it can make, `pushes` op number and class of what it takes."""

    __slots__ = ("_ended", "_expected", "_forgotten", "_next_number", "_ops", "_pushes", "_reader")

    def __init__(
        self,
        ops: Mapping[type[Any], tuple[int, type[Any] | None]] = messages.OPS,
        pushes: Mapping[int, type[Any]] | None = None,
    ) -> None:
        self._ops = ops
        self._pushes = pushes or {}
        self._reader = FrameReader()
        self._next_number = 1
        self._expected: dict[int, type[Any]] = {}
        self._forgotten: set[int] = set()
        self._ended: Ended | None = None

    @property
    def waiting_count(self) -> int:
        """Requests that are neither answered nor forgotten."""
        return len(self._expected)

    @property
    def forgotten_count(self) -> int:
        """Answers that may still come and nobody wants."""
        return len(self._forgotten)

    def request(self, message: Message) -> tuple[int, bytes]:
        """Its number and the bytes to send. LocalProtocolError if a value cannot travel."""
        op, answer = self._ops[type(message)]
        if answer is None:
            raise LocalProtocolError(f"{type(message).__name__} is pushed by the broker, never sent to it")
        number = self._next_number
        data = codec.encode([op, number, *message])
        self._next_number = number + 1
        self._expected[number] = answer
        return number, data

    def forget(self, number: int) -> None:
        """Drop the answer to this request, should it still come."""
        if self._expected.pop(number, None) is not None:
            self._forgotten.add(number)

    def withdraw(self, number: int) -> None:
        """This request never left, so no answer will come."""
        self._expected.pop(number, None)

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes as they came."""
        self._reader.feed(data)

    def receive_eof(self) -> None:
        """The peer closed. Whole frames that came before still give their events."""
        if self._ended is None:
            self._ended = Ended(None)

    def next_event(self) -> Event | None:
        """The next event, or None when more bytes are needed."""
        while True:
            try:
                body = self._reader.next_frame()
                if body is None:
                    return self._ended
                event = self._read(codec.decode(body))
            except RemoteProtocolError as error:
                event = Ended(error)
            if event is None:
                continue
            if isinstance(event, Ended):
                # What follows can no longer be trusted to begin at a frame.
                self._ended = event
                self._reader = FrameReader()
            return event

    def _read(self, fields: list[Any]) -> Event | None:
        op, number = fields[0], fields[1]
        if type(op) is not int or type(number) is not int:
            raise RemoteProtocolError("bad_frame", "op and request id must be integers")
        if op > messages.ERROR:
            pushed = self._pushes.get(op)
            return None if pushed is None else Pushed(_build(pushed, fields))
        if op == messages.ERROR and number == 0:
            return Ended(_refusal(fields))
        expected = self._expected.pop(number, None)
        if expected is None:
            if number not in self._forgotten:
                raise RemoteProtocolError(
                    "bad_message", f"an answer to request {number}, which was not asked"
                )
            self._forgotten.discard(number)
            return None
        if op == messages.ERROR:
            return Refused(number, _refusal(fields))
        return Answered(number, _build(expected, fields))


def _refusal(fields: list[Any]) -> RefusedError:
    message: messages.Refusal = _build(messages.Refusal, fields)
    if type(message.code) is not str or type(message.message) is not str:
        raise RemoteProtocolError("bad_message", "an error without code word and message")
    detail = message.detail if isinstance(message.detail, dict) else None
    return refusal(message.code, message.message, detail)


def _build(cls: type[Any], fields: list[Any]) -> Any:
    """Fields a newer broker appended are ignored, those an older one left out take their defaults."""
    try:
        return cls(*fields[2 : 2 + len(cls._fields)])
    except TypeError as error:
        raise RemoteProtocolError("bad_message", f"{cls.__name__}: a field is missing") from error
