"""What handlers print and log, through a real broker and pool: attributed, and kept where that is wanted."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.stack import Stack
from support.waiting import wait_until

from stoker.client.handle import JobHandle, JobOutcome

pytestmark = pytest.mark.slow


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        yield stack


def said(stack: Stack, handle: JobHandle) -> list[str]:
    """What the pool's output has of a job, without its attribution.

    With PYTHONUNBUFFERED what a start hook prints, of a worker that begins meanwhile, leaves in two pieces,
    and a whole line of a job may come between them.
    """
    head = re.compile(rf"\[[a-z_]+ {handle.id} 1\] ")
    text = (stack.directory / "pool.log").read_text()
    return [line[found.end() :] for line in text.splitlines() if (found := head.search(line))]


def run(stack: Stack, kind: str, *args: object) -> JobHandle:
    handle = stack.client.enqueue(kind, args, attempts_max=1)
    handle.wait(20)
    return handle


def outputs(stack: Stack, handle: JobHandle) -> list[Any]:
    return [row["output"] for row in stack.client.show(handle.id)["history"]]


def test_prints_and_records_of_a_plain_handler_are_attributed(stack: Stack) -> None:
    stack.start_pool("talking:app", 1)
    lines = said(stack, run(stack, "talk"))
    assert [re.sub(".*INFO", "INFO", line) for line in lines] == [
        "printed 0",
        "to stderr",
        "INFO talking: logged",
        "from a thread",
        "unfinished",
    ]


def test_prints_and_records_of_an_isolated_handler_are_attributed(stack: Stack) -> None:
    stack.start_pool("talking:app", 1)
    lines = said(stack, run(stack, "talk_alone"))
    assert (lines[0], lines[1].partition("INFO ")[2]) == ("printed alone", "talking: logged alone")


def test_lines_of_tasks_side_by_side_are_whole_and_each_its_own(stack: Stack) -> None:
    stack.start_pool("talking:app", 1)
    handles = [stack.client.enqueue("talk_side_by_side", [20]) for _ in range(20)]
    for handle in handles:
        handle.wait(20)
    for handle in handles:
        assert said(stack, handle)[:20] == [f"part {number} whole" for number in range(20)]


def test_lines_of_workers_side_by_side_are_whole(stack: Stack) -> None:
    stack.start_pool("talking:app", 4)
    handles = [stack.client.enqueue("talk", [200]) for _ in range(8)]
    for handle in handles:
        handle.wait(30)
    counts = Counter(len(said(stack, handle)) for handle in handles)
    assert counts == {204: 8}


def test_threads_of_asyncio_know_the_job(stack: Stack) -> None:
    stack.start_pool("talking:app", 1)
    assert said(stack, run(stack, "talk_in_asyncio")) == ["from a thread of asyncio"]


def test_start_hooks_and_programs_are_not_attributed(stack: Stack) -> None:
    stack.start_pool("talking:app", 1)
    run(stack, "child")
    lines = (stack.directory / "pool.log").read_text().splitlines()
    assert {"a start hook", "from a program"} <= set(lines)


def test_log_in_json_is_json_from_the_start_hooks_on(stack: Stack) -> None:
    stack.start_pool("talking:app", 1, STOKER_LOG_FORMAT="json")
    handle = run(stack, "talk")
    text = (stack.directory / "pool.log").read_text()
    lines = [json.loads(line) for line in text.splitlines() if line != "a start hook"]
    assert [line["line"] for line in lines if line.get("id") == handle.id] == [
        *("printed 0", "to stderr", "INFO talking: logged", "from a thread", "unfinished"),
    ]


def test_nothing_is_kept_unless_it_is_asked_for(stack: Stack) -> None:
    stack.start_pool("talking:app", 1)
    assert outputs(stack, run(stack, "talk")) == [None]


@pytest.fixture
def keeping(stack: Stack) -> Stack:
    stack.start_pool("talking:app", 1, STOKER_POOL_CAPTURE="200")
    return stack


def test_output_is_kept_with_a_success(keeping: Stack) -> None:
    (output,) = outputs(keeping, run(keeping, "talk"))
    assert output.startswith("printed 0\nto stderr\n")
    assert output.endswith("INFO talking: logged\nfrom a thread\nunfinished")


def test_output_is_kept_with_a_failure(keeping: Stack) -> None:
    assert outputs(keeping, run(keeping, "fail")) == ["before it failed\n"]


def test_only_the_end_is_kept(keeping: Stack) -> None:
    (output,) = outputs(keeping, run(keeping, "talk", 500))
    assert len(output) == 200
    assert output.endswith("unfinished")


def test_output_of_an_isolated_attempt_is_kept(keeping: Stack) -> None:
    (output,) = outputs(keeping, run(keeping, "talk_alone"))
    assert output.startswith("printed alone\n")


@pytest.mark.parametrize("kind", ["talk_side_by_side", "talk_in_asyncio"])
def test_output_of_a_coroutine_is_kept(keeping: Stack, kind: str) -> None:
    args = [2] if kind == "talk_side_by_side" else []
    (output,) = outputs(keeping, run(keeping, kind, *args))
    assert output.startswith("part 0 whole\n" if args else "from a thread of asyncio\n")


def test_nothing_is_kept_of_a_crash(keeping: Stack) -> None:
    handle = keeping.client.enqueue("crash", crashes_max=1)
    outcome: JobOutcome = handle.wait(20)
    assert outcome.outcome == "crash"
    assert outputs(keeping, handle) == [None]


def test_dead_job_is_in_the_log_of_the_broker(stack: Stack) -> None:
    stack.start_pool("talking:app", 1)
    handle = run(stack, "fail")
    line = f" broker job_dead kind=fail id={handle.id} queue=default attempt=1 outcome=error reason="
    wait_until(lambda: line in (stack.directory / "broker.log").read_text(), "the broker says it")


def test_log_of_the_broker_is_json_if_told_so(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker("--log-format", "json")
        lines = (stack.directory / "broker.log").read_text().splitlines()
        assert [json.loads(line)["event"] for line in lines][:1] == ["ready"]
