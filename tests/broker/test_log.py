"""The log: one line an event, bounded in number, and never in the way."""

import json
import os
from collections.abc import Iterator

import pytest

from stoker.broker.log import BURST, WINDOW_S, Log


class Pipe:
    """Where a log writes to, and what came out."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_NONBLOCK)
        self.seconds = 0.0

    def log(self, form: str = "logfmt") -> Log:
        return Log(self.writer, form=form, clock=lambda: self.seconds)

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


def test_figures_have_only_a_second_and_fields(pipe: Pipe) -> None:
    pipe.log().figures(61, queue="mail", ready=2)
    assert pipe.lines() == ["1970-01-01T00:01:01Z queue=mail ready=2"]


def test_json_is_one_object_a_line(pipe: Pipe) -> None:
    log = pipe.log(form="json")
    log.event("lease_expired", job=7)
    log.figures(61, queue="mail", ready=2)
    event, figures = map(json.loads, pipe.lines())
    assert (event["source"], event["event"], event["job"]) == ("broker", "lease_expired", 7)
    assert figures == {
        "time": "1970-01-01T00:01:01Z",
        "source": "broker",
        "event": "figures",
        "queue": "mail",
        "ready": 2,
    }


def test_figures_are_not_held_back(pipe: Pipe) -> None:
    log = pipe.log()
    for number in range(BURST + 5):
        log.figures(0, queue=f"queue-{number}")
    assert len(pipe.lines()) == BURST + 5


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
