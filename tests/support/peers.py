"""The two ends of one connection in memory: a broker's `Connection`, and whoever talks to it."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from stoker.proto import codec, messages
from stoker.proto.connection import Connection, Ended, Event, Refused, Request
from stoker.proto.frames import HEADER_BYTES, FrameReader
from stoker.proto.messages import Message
from stoker.proto.model import Role
from stoker.proto.ops import BY_MESSAGE, BY_NAME
from stoker.proto.work import Pool

BOOT_ID = "5ae0a3c1-8a2e-4e65-a7f3-2f1b0a9c7d11"
IDENTITY = [BOOT_ID, 4026531836, 4242, 123456, "0123456789abcdef"]
TICKET = bytes(range(16))

HELLOS: dict[Role, Message] = {
    Role.SUBMIT: messages.Hello(1, Role.SUBMIT),
    Role.ADMIN: messages.Hello(1, Role.ADMIN),
    Role.WORK: messages.Hello(1, Role.WORK, kinds=["resize"], slots=1),
    Role.SUPERVISE: Pool(1, "pool", TICKET, IDENTITY, [{"kind": "resize"}]),
}
"""The first message of each role."""


def connection(*roles: Role) -> Connection:
    """A connection whose peer has these roles; without any, all of them."""
    return Connection(frozenset(roles or Role))


def frame(message: Message, number: int = 1) -> bytes:
    """A request as its sender would write it."""
    return codec.encode((BY_MESSAGE[type(message)].number, number, *message))


def events(broker: Connection, data: bytes = b"") -> list[Event]:
    """Everything that `data` amounts to."""
    broker.receive_data(data)
    return list(_events(broker))


def _events(broker: Connection) -> Iterator[Event]:
    while (event := broker.next_event()) is not None:
        yield event


def request(broker: Connection, data: bytes) -> Request:
    """The one request in `data`."""
    (event,) = events(broker, data)
    assert isinstance(event, Request), event
    return event


def refused(broker: Connection, data: bytes) -> str:
    """The code of the one refusal in `data`, after which the connection goes on."""
    (event,) = events(broker, data)
    assert isinstance(event, Refused), event
    return code(event.data)


def ended(broker: Connection, data: bytes) -> str:
    """The code with which `data` ends the connection."""
    (event,) = events(broker, data)
    assert isinstance(event, Ended), event
    return code(event.data)


def code(data: bytes) -> str:
    """The code word of one refusal in either form."""
    if data.startswith(b"{"):
        return str(json.loads(data)["error"])
    array = codec.decode(data[HEADER_BYTES:])
    assert array[0] == messages.ERROR
    return str(array[2])


def arrays(data: bytes) -> list[list[Any]]:
    """The arrays of whole frames."""
    reader = FrameReader()
    reader.feed(data)
    found: list[list[Any]] = []
    while (body := reader.next_frame()) is not None:
        found.append(codec.decode(body))
    return found


def introduced(role: Role, *granted: Role) -> Connection:
    """A connection that has said its first message in a role."""
    broker = connection(*granted)
    request(broker, frame(HELLOS[role]))
    return broker


def line(op: str, **fields: Any) -> bytes:
    """A request as one line of JSON."""
    assert op in BY_NAME
    return json.dumps({"op": op, **fields}).encode() + b"\n"


def nested(depth: int) -> Sequence[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value
