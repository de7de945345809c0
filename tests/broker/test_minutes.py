"""The lines that come by the minute: their form, and when they come."""

import os
import re
from collections.abc import Iterator

import pytest
from support.shell import eventually, serving

from stoker.broker.core.figures import Figures, Minute
from stoker.broker.log import Log
from stoker.broker.minutes import Minutes
from stoker.proto import limits
from stoker.proto.messages import Enqueue

MINUTE = limits.MINUTE_MS
AT_MS = 1_784_542_500_000
"""2026-07-20T10:15:00Z."""

MAIL = Figures("mail", 12, 1, 0, 204, 3, 48_900, 5)
NOTHING = Figures("", 0, 0, 0, 0, 0, 0, 0)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def said(pipe: tuple[int, int], minute: Minute) -> list[str]:
    minutes = Minutes(Log(pipe[1]))
    minutes.has_begun(AT_MS + 3000)
    minutes.say(minute)
    return os.read(pipe[0], 1 << 16).decode().splitlines()


def test_line_has_the_minute_and_the_figures(pipe: tuple[int, int]) -> None:
    (line,) = said(pipe, Minute([MAIL], 0, NOTHING))
    figures = "ready=12 leased=1 scheduled=0 done=204 dead=3 oldest_ready_s=48 retries_1m=5"
    assert line == f"2026-07-20T10:15:00Z queue=mail {figures}"


def test_queues_beyond_the_bound_are_one_line(pipe: tuple[int, int]) -> None:
    lines = said(pipe, Minute([MAIL], 70, MAIL._replace(queue="")))
    assert [line.split()[1] for line in lines] == ["queue=mail", "queues=70"]


def test_minute_begins_on_the_minute_and_once() -> None:
    minutes = Minutes(Log())
    assert minutes.left_ms(AT_MS + 1) == MINUTE - 1
    times = (AT_MS + 1, AT_MS + MINUTE - 1, AT_MS + MINUTE, AT_MS + MINUTE + 5)
    assert [minutes.has_begun(at) for at in times] == [False, False, True, False]


@pytest.mark.trio
async def test_broker_says_it_when_a_minute_has_passed(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.ask(Enqueue("a", "send", b""))
        shell.clock.ahead_ms += MINUTE

        async def is_said() -> bool:
            return any(re.match("ready=1 leased=0 .* retries_1m=0$", line) for line in shell.log.lines)

        await eventually(is_said, "the figures are said")
