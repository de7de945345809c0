"""The pool's log: one line an event, and nobody waits for its reader."""

import os
import re

from support.waiting import wait_until

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
    assert len(data) <= log.LINE_BYTES_MAX + 1


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
