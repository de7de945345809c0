"""A peer that asks for much with little, and reads nothing: others are answered, and memory stays small."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from support.stack import Stack
from support.wire_peer import frame

from stoker.proto import limits
from stoker.proto.messages import Jobs, Message, Show, Status, Wait, Why
from stoker.proto.ops import BY_MESSAGE

pytestmark = pytest.mark.slow

QUEUES = 500
REQUESTS = 4000
"""One read of the broker, or a few, and if all were answered, 64 MiB to 4 GiB."""

ENQUEUES = 30
SLOWEST_S = 0.5
PEAK_MIB_MAX = 160
"""A broker with these few jobs has about 50."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("flood")) as stack:
        stack.start_broker()
        stack.client.enqueue("noop", id="large", payload=bytes(limits.PAYLOAD_BYTES_MAX))
        for number in range(QUEUES):
            stack.client.enqueue("noop", queue=f"queue-with-a-long-name-{number}")
        yield stack


def frames(message: Message) -> bytes:
    number = BY_MESSAGE[type(message)].number
    return b"".join(frame(number, request, *message) for request in range(1, REQUESTS + 1))


def lines(message: Message) -> bytes:
    op = BY_MESSAGE[type(message)]
    fields = dict(zip(op.message._fields, message, strict=True))
    return (json.dumps({"op": op.name, **fields}).encode() + b"\n") * REQUESTS


def peak_mib(stack: Stack) -> int:
    assert stack.broker is not None
    with open(f"/proc/{stack.broker.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmHWM"))


def slowest_enqueue_s(stack: Stack) -> float:
    """Of one who asks for little, one after the other."""
    slowest_s = 0.0
    for _ in range(ENQUEUES):
        began_s = time.monotonic()
        stack.client.enqueue("noop")
        slowest_s = max(slowest_s, time.monotonic() - began_s)
    return slowest_s


@pytest.mark.parametrize("spell", [frames, lines])
@pytest.mark.parametrize(
    "message",
    [Show("large", True), Jobs(limit=limits.JOBS_PAGE_MAX), Status(), Why("large"), Wait("large", 60_000)],
    ids=lambda message: type(message).__name__,
)
def test_who_asks_for_much_and_reads_nothing_holds_up_nobody(
    stack: Stack, message: Message, spell: Callable[[Message], bytes]
) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.connect(stack.socket)
        deaf.setblocking(False)
        with suppress(BlockingIOError):
            deaf.sendall(spell(message))
        slowest_s = slowest_enqueue_s(stack)
    assert slowest_s < SLOWEST_S
    assert peak_mib(stack) < PEAK_MIB_MAX


def test_who_asks_for_much_and_reads_it_gets_all_and_holds_up_nobody(stack: Stack) -> None:
    with socket.socket(socket.AF_UNIX) as eager:
        eager.connect(stack.socket)
        eager.sendall(frame(BY_MESSAGE[Show].number, 1, "large", True) * 50)
        slowest_s = slowest_enqueue_s(stack)
        got = 0
        while got < 50 * limits.PAYLOAD_BYTES_MAX:
            got += len(eager.recv(limits.MIB))
    assert slowest_s < SLOWEST_S
    assert peak_mib(stack) < PEAK_MIB_MAX
