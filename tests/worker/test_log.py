"""The pool's log: one line an event, and nobody waits for its reader."""

import json
import os
import re
from collections.abc import Iterator

import pytest
from support.waiting import wait_until

from stoker.config.logline import LINE_BYTES_MAX
from stoker.worker import log
from stoker.worker.log import LINES_WAITING_MAX, Writer


def test_line_has_time_event_and_fields() -> None:
    text = log.line("worker_exited", pid=7, signal=9, status=None).decode()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z pool worker_exited pid=7 signal=9\n", text)


def test_line_stays_one_harmless_line_whatever_a_value_holds() -> None:
    data = log.line("x", value='two\nlines \x1b[2J "quoted" \x7f é \ud800 ', long="y" * 100_000)
    assert data.count(b"\n") == 1
    assert data.endswith(b"\n")
    assert all(32 <= byte < 127 for byte in data[:-1])
    assert len(data) <= LINE_BYTES_MAX


def test_writer_writes_what_it_is_given_in_order() -> None:
    reader, writer_fd = os.pipe()
    writer = Writer(writer_fd)
    writer.say("first")
    writer.write(b"second\n")
    writer.close()
    text = os.read(reader, 4096).decode()
    assert text.index("first") < text.index("second")
    os.close(reader)
    os.close(writer_fd)


def test_full_pipe_with_a_stopped_reader_holds_up_nobody() -> None:
    reader, writer_fd = os.pipe()
    writer = Writer(writer_fd)
    for _ in range(5 * LINES_WAITING_MAX):
        writer.say("event", text="x" * 300)
    os.close(reader)  # the reader goes away; the thread's write fails and it takes in the rest
    writer.close()
    wait_until(lambda: writer.is_idle, "the writer has given up its lines")
    os.close(writer_fd)


@pytest.fixture
def as_json() -> Iterator[None]:
    log.set_form("json")
    yield
    log.set_form("logfmt")


@pytest.mark.usefixtures("as_json")
def test_json_is_one_object_a_line_without_what_is_absent() -> None:
    found = json.loads(log.line("worker_exited", pid=7, status=None))
    assert found == {"time": found["time"], "source": "pool", "event": "worker_exited", "pid": 7}


@pytest.mark.usefixtures("as_json")
def test_text_of_more_lines_is_json_line_by_line() -> None:
    lines = log.shaped(b"ValueError: no\n  File x\n").splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["ValueError: no", "  File x"]


def test_text_of_more_lines_stays_text_for_people() -> None:
    assert log.shaped(b"ValueError: no\n  File x\n") == b"ValueError: no\n  File x\n"
