"""Handlers' streams: whole lines that say whose they are."""

import contextvars
import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stoker.worker.context import CurrentJob, set_current_job, set_task_job
from stoker.worker.output import PARTIAL_BYTES_MAX, PARTIALS_MAX, PIPE_BYTES, Outlet, OutputRules
from stoker.worker.tails import Tails

TOKEN = (1, 7)
HEAD = "[send job-7 2] "


def a_job(number: int = 7) -> CurrentJob:
    return CurrentJob(f"job-{number}", 2, (1, number), "send", "mail", {}, 0.0)


class Bench:
    """One stream over a pipe, and what came out of it."""

    def __init__(self, rules: OutputRules = OutputRules()) -> None:  # noqa: B008 - a constant
        self.reader, writer = os.pipe2(os.O_NONBLOCK)
        os.set_blocking(writer, True)
        self.below = os.fdopen(writer, "w", encoding="utf-8")
        self.tails = Tails(100) if rules.capture_bytes else None
        self.outlet = Outlet(self.below, rules, self.tails)
        self.stream = io.TextIOWrapper(self.outlet, encoding="utf-8", newline="\n", write_through=True)

    def print(self, *words: object, **options: Any) -> None:
        print(*words, file=self.stream, **options)

    def raw(self) -> bytes:
        try:
            return os.read(self.reader, 1 << 20)
        except BlockingIOError:
            return b""

    def lines(self) -> list[str]:
        return self.raw().decode().splitlines()

    def close(self) -> None:
        self.below.close()
        os.close(self.reader)


@pytest.fixture
def make() -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def made(**rules: Any) -> Bench:
        benches.append(Bench(OutputRules(**rules)))
        return benches[-1]

    yield made
    set_current_job(None)
    for bench in benches:
        bench.close()


@pytest.fixture
def bench(make: Callable[..., Bench]) -> Bench:
    """In a job."""
    set_current_job(a_job())
    return make()


def test_line_says_kind_id_and_attempt(bench: Bench) -> None:
    bench.print("hello", "world")
    assert bench.lines() == [HEAD + "hello world"]


def test_every_line_of_a_text_says_so(bench: Bench) -> None:
    bench.print("Traceback\n  File x\n\nError")
    assert bench.lines() == [HEAD + "Traceback", HEAD + "  File x", HEAD, HEAD + "Error"]


def test_line_in_pieces_appears_when_it_is_whole(bench: Bench) -> None:
    bench.print("half ", end="")
    assert bench.lines() == []
    bench.print("whole")
    assert bench.lines() == [HEAD + "half whole"]


def test_flush_makes_a_line_of_what_there_is(bench: Bench) -> None:
    bench.print("working...", end="", flush=True)
    assert bench.lines() == [HEAD + "working..."]


def test_unfinished_line_appears_at_the_end_of_the_attempt(bench: Bench) -> None:
    bench.print("last words", end="")
    bench.outlet.end(TOKEN)
    assert bench.lines() == [HEAD + "last words"]


def test_progress_bar_does_not_wipe_out_whose_it_is(bench: Bench) -> None:
    bench.print("\r50 %", end="\r", flush=True)
    assert bench.raw() == f"{HEAD}50 %\n".encode()


def test_outside_of_jobs_nobody_is_named(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.print("nobody")
    assert bench.lines() == ["nobody"]


def test_bytes_below_the_text_are_attributed_as_well(bench: Bench) -> None:
    bench.stream.buffer.write(b"raw \xff\n")
    assert bench.raw() == HEAD.encode() + b"raw \xff\n"


def test_threads_do_not_mix_within_a_line(bench: Bench) -> None:
    bench.print("main ", end="")
    thread = threading.Thread(target=lambda: bench.print("other"))
    thread.start()
    thread.join()
    bench.print("thread")
    assert bench.lines() == [HEAD + "other", HEAD + "main thread"]


def test_tasks_do_not_mix_within_a_line(make: Callable[..., Bench]) -> None:
    bench, tasks = make(), [contextvars.copy_context() for _ in range(2)]
    for number, task in enumerate(tasks):
        task.run(set_task_job, a_job(number))
    for text in ("one", "two\n"):
        for task in tasks:
            task.run(bench.print, text, end=" " if text == "one" else "")
    assert bench.lines() == ["[send job-0 2] one two", "[send job-1 2] one two"]


def test_lines_of_one_text_leave_together(bench: Bench) -> None:
    bench.stream.write("one\ntwo\n")
    assert bench.raw() == f"{HEAD}one\n{HEAD}two\n".encode()


def test_line_that_no_pipe_takes_whole_is_broken_between_characters(bench: Bench) -> None:
    bench.print("é" * PIPE_BYTES)
    lines = bench.raw().splitlines(keepends=True)
    assert all(len(line) <= PIPE_BYTES and line.startswith(HEAD.encode()) for line in lines)
    assert "".join(line.decode()[len(HEAD) : -1] for line in lines) == "é" * PIPE_BYTES


def test_endless_line_is_not_gathered_for_ever(bench: Bench) -> None:
    bench.print("x" * (PARTIAL_BYTES_MAX + 1), end="")
    assert sum(line.count("x") for line in bench.lines()) == PARTIAL_BYTES_MAX + 1


def test_unfinished_lines_do_not_pile_up(make: Callable[..., Bench]) -> None:
    bench = make()
    for number in range(PARTIALS_MAX + 1):
        set_current_job(a_job(number))
        bench.print("unfinished", end="")
    assert bench.lines() == ["[send job-0 2] unfinished"]


def test_json_is_one_object_a_line(make: Callable[..., Bench]) -> None:
    bench = make(form="json")
    set_current_job(a_job())
    bench.print('say "hi"\nand more')
    first, second = map(json.loads, bench.lines())
    assert (first["kind"], first["id"], first["attempt"]) == ("send", "job-7", 2)
    assert (first["source"], first["line"], second["line"]) == ("job", 'say "hi"', "and more")


def test_long_line_in_json_is_broken_and_loses_nothing(make: Callable[..., Bench]) -> None:
    bench, text = make(form="json"), "\U0001f600" * 3000
    set_current_job(a_job())
    bench.print(text)
    lines = bench.raw().splitlines(keepends=True)
    assert all(len(line) <= PIPE_BYTES for line in lines)
    assert "".join(json.loads(line)["line"] for line in lines) == text


def test_plain_output_is_passed_on_as_it_comes(make: Callable[..., Bench]) -> None:
    bench = make(attributed=False, capture_bytes=100)
    set_current_job(a_job())
    bench.print("half", end="")
    assert bench.raw() == b"half"


def test_captured_is_what_was_printed_without_attribution(make: Callable[..., Bench]) -> None:
    bench = make(capture_bytes=100)
    assert bench.tails is not None
    bench.tails.begin(TOKEN)
    set_current_job(a_job())
    bench.print("hello")
    set_current_job(a_job(8))
    bench.print("another's")
    assert bench.tails.take(TOKEN) == "hello\n"


def test_nobody_fails_because_nobody_reads(bench: Bench) -> None:
    os.close(bench.reader)
    bench.reader = os.open(os.devnull, os.O_RDONLY)
    bench.print("into the void")


def test_what_others_wrote_to_the_stream_below_is_flushed_with_it(bench: Bench) -> None:
    bench.below.write("from the app's own handler\n")
    bench.stream.flush()
    assert bench.lines() == ["from the app's own handler"]


def test_closing_the_stream_leaves_the_descriptor(bench: Bench) -> None:
    bench.print("last", end="")
    bench.stream.close()
    os.fstat(bench.below.fileno())
    assert bench.lines() == [HEAD + "last"]
