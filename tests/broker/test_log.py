"""The log: one line an event whatever is in it, bounded in size and number, and never in the way."""

import os
from collections.abc import Iterator

import pytest

from stoker.broker.log import BURST, LINE_BYTES_MAX, WINDOW_S, Log, quote


class Pipe:
    """Where a log writes to, and what came out."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_NONBLOCK)
        self.seconds = 0.0

    def log(self) -> Log:
        return Log(self.writer, clock=lambda: self.seconds)

    def lines(self) -> list[str]:
        try:
            return os.read(self.reader, 1 << 20).decode("ascii").splitlines()
        except BlockingIOError:
            return []


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.reader)
    os.close(pipe.writer)


def test_line_has_time_event_and_fields(pipe: Pipe) -> None:
    pipe.log().event("lease_expired", job=7, reason="no heartbeat")
    (line,) = pipe.lines()
    stamp, rest = line.split(" ", 1)
    assert stamp.endswith("Z")
    assert rest == 'broker lease_expired job=7 reason="no heartbeat"'


@pytest.mark.parametrize(
    "hostile", ["two\nlines", "\x1b[2J", "\x7f", "\u2028", "\x9b", 'quote"', "a=b c=d", "\ud800", ""]
)
def test_hostile_value_stays_one_quoted_word(pipe: Pipe, hostile: str) -> None:
    pipe.log().event("seen", value=hostile)
    (line,) = pipe.lines()
    assert line.isprintable()
    assert line.partition("value=")[2][0] == line[-1] == '"'


def test_plain_values_are_bare() -> None:
    assert [quote(value) for value in ("mail", 7, None, "/run/x.sock")] == [
        "mail",
        "7",
        "None",
        "/run/x.sock",
    ]


def test_long_values_and_lines_are_cut(pipe: Pipe) -> None:
    long = "x" * 100_000
    pipe.log().event("seen", a=long, b=long, c=long, d=long, e=long, f=long, g=long, h=long)
    (line,) = pipe.lines()
    assert len(line) < LINE_BYTES_MAX


def test_flood_of_one_event_is_held_back_and_counted(pipe: Pipe) -> None:
    log = pipe.log()
    for _ in range(BURST + 5):
        log.event("flood")
    assert len(pipe.lines()) == BURST
    pipe.seconds = WINDOW_S
    log.event("flood")
    assert pipe.lines()[0].endswith("flood held_back=5")


def test_flood_of_one_event_does_not_hide_another(pipe: Pipe) -> None:
    log = pipe.log()
    for _ in range(BURST + 5):
        log.event("flood")
    log.event("other")
    assert pipe.lines()[-1].endswith("broker other")


def test_reader_that_stopped_reading_does_not_block_and_learns_what_it_missed(pipe: Pipe) -> None:
    log = pipe.log()
    filler = b"x" * 65536
    os.write(pipe.writer, filler)
    log.event("lost")
    os.read(pipe.reader, len(filler))
    log.event("seen")
    (line,) = pipe.lines()
    assert line.endswith("broker seen lines_dropped=1")
