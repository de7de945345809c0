"""Hooks: order, what passes through a context and what it makes of it, and stop hooks in real workers."""

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from support.pools import RunningPool
from support.waiting import wait_until

from stoker import App
from stoker.proto.work import Ack, Nack
from stoker.worker import attempt
from stoker.worker.attempt import Guard
from stoker.worker.context import CurrentJob
from stoker.worker.hooks import Hooks

JOB = CurrentJob("a", 1, (1, 1), "kind", "default", {}, 0.0)


def fits(*args: Any) -> None:
    """Everything does."""


def run(app: App, function: Any) -> Ack | Nack:
    """One attempt in the app's contexts."""
    return attempt.run(app.hooks.within(function, lambda: JOB), (1, 1), b"", Guard(), fits=fits)


def nack(app: App, function: Any) -> Nack:
    answer = run(app, function)
    assert isinstance(answer, Nack)
    return answer


def fail() -> None:
    raise ValueError("the job's own")


def nothing() -> None: ...


# --- around a job --------------------------------------------------------------------------------------


def test_contexts_nest_in_the_order_of_their_declaration() -> None:
    app, seen = App(), list[str]()

    @app.around_job
    def outer(job: CurrentJob) -> Iterator[None]:
        seen.append(f"outer {job.id}")
        yield
        seen.append("outer ends")

    @app.around_job
    @contextmanager
    def inner(job: CurrentJob) -> Generator[None]:
        seen.append("inner")
        yield
        seen.append("inner ends")

    assert isinstance(run(app, lambda: seen.append("job")), Ack)
    assert seen == ["outer a", "inner", "job", "inner ends", "outer ends"]
    assert callable(outer)
    assert callable(inner)


def test_without_contexts_the_function_itself_is_run() -> None:
    assert Hooks().within(nothing, lambda: JOB) is nothing


def test_exception_of_the_job_passes_through_every_context_unsigned() -> None:
    app, seen = App(), list[str]()

    @app.around_job
    def watching(job: CurrentJob) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(str(error))
            raise

    answer = nack(app, fail)
    assert (answer.outcome, answer.reason, seen) == (
        "error",
        "ValueError: the job's own",
        ["the job's own"],
    )
    assert "around_job" not in answer.report
    assert callable(watching)


def test_context_may_swallow_the_jobs_exception() -> None:
    app = App()

    @app.around_job
    def forgiving(job: CurrentJob) -> Iterator[None]:
        with suppress(ValueError):
            yield

    answer = run(app, fail)
    assert isinstance(answer, Ack)
    assert answer.result is None
    assert callable(forgiving)


def before(job: CurrentJob) -> Iterator[None]:
    raise LookupError("no tenant")
    yield


def after(job: CurrentJob) -> Iterator[None]:
    yield
    raise LookupError("no commit")


def instead(job: CurrentJob) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise LookupError("translated") from error


def not_one(job: CurrentJob) -> Iterator[None]:
    return iter(())


@pytest.mark.parametrize(("hook", "job"), [(before, nothing), (after, nothing), (instead, fail)])
def test_error_of_a_context_is_the_attempts_and_names_it(hook: Any, job: Any) -> None:
    app = App()
    app.around_job(hook)
    answer = nack(app, job)
    assert (answer.outcome, answer.reason[:11]) == ("error", "LookupError")
    assert f"raised by the around_job hook {hook.__name__}" in answer.report


def test_what_makes_no_context_is_named() -> None:
    app = App()
    app.around_job(not_one)
    answer = nack(app, nothing)
    assert "context manager" in answer.reason
    assert "around_job hook not_one" in answer.report


def test_outer_context_sees_what_an_inner_one_raised_and_is_not_blamed() -> None:
    app, seen = App(), list[str]()

    @app.around_job
    def outer(job: CurrentJob) -> Iterator[None]:
        try:
            yield
        finally:
            seen.append("outer ends")

    app.around_job(before)
    report = nack(app, nothing).report
    assert seen == ["outer ends"]
    assert ("hook before" in report, "hook outer" in report) == (True, False)
    assert callable(outer)


def test_coroutines_run_in_the_contexts_too() -> None:
    app, seen = App(), list[str]()

    @app.around_job
    def around(job: CurrentJob) -> Iterator[None]:
        seen.append(job.id)
        yield
        seen.append("ends")

    async def handler(word: str) -> str:
        await trio.lowlevel.checkpoint()
        seen.append(word)
        return word

    assert trio.run(app.hooks.within_task(handler, lambda: JOB), "job") == "job"
    assert seen == ["a", "job", "ends"]
    assert Hooks().within_task(handler, lambda: JOB) is handler
    assert callable(around)


def test_hooks_that_would_do_nothing_are_refused() -> None:
    app = App()

    async def lazy() -> None: ...

    async def lazy_context(job: CurrentJob) -> Any: ...

    mistaken: Any = lazy_context

    def generator() -> Iterator[None]:
        yield

    for declare, hook in [(app.on_start, lazy), (app.on_stop, lazy), (app.on_start, generator)]:
        with pytest.raises(TypeError, match=r"does nothing when it is called"):
            declare(hook)
    with pytest.raises(TypeError, match="async"):
        app.around_job(mistaken)


def test_included_hooks_come_after_those_that_are_there() -> None:
    ran: list[str] = []
    ours, theirs = Hooks(), Hooks()
    ours.add_start(lambda: ran.append("ours"))
    theirs.add_start(lambda: ran.append("theirs"))
    ours.include(theirs)
    ours.start()
    assert ran == ["ours", "theirs"]


def test_start_hook_that_fails_is_named_and_ends_the_start() -> None:
    hooks, ran = Hooks(), list[int]()
    hooks.add_start(fail)
    hooks.add_start(lambda: ran.append(1))
    with pytest.raises(ValueError, match="own") as caught:
        hooks.start()
    assert (caught.value.__notes__, ran) == (["raised by the on_start hook fail"], [])


# --- in real workers -------------------------------------------------------------------------------------

APP = """
    def mark(what):
        with open("marks", "a") as file:
            file.write(f"{os.getpid()} {what}\\n")


    @app.on_start
    def opened():
        mark("start")


    @app.on_stop
    def closed():
        mark("stop 1")


    @app.on_stop
    def failing():
        mark("stop 2")
        raise RuntimeError("cannot close")


    @app.on_stop
    def last_declared():
        mark("stop 3")


    @app.around_job
    def tenant(job):
        mark(f"enter {job.kind}")
        yield
        mark("leave")
"""

HANGING = """
    @app.on_stop
    def hang_in_c():
        ctypes.PyDLL(None).sleep(60)
"""


def marks(pool: RunningPool, pid: int) -> list[str]:
    """What one worker has written."""
    path = pool.directory / "marks"
    lines = [line.split(" ", 1) for line in path.read_text().splitlines()] if path.exists() else []
    return [what for owner, what in lines if int(owner) == pid]


@pytest.mark.slow
def test_drain_calls_stop_hooks_in_reverse_also_after_one_that_fails(short_directory: Path) -> None:
    with RunningPool(short_directory, app=APP) as pool:
        pid = pool.broker.wait_result(pool.broker.put("pid"))
        assert pool.terminate() == 0
        assert marks(pool, pid) == ["start", "enter pid", "leave", "stop 3", "stop 2", "stop 1"]
        assert "stop_hook_failed" in pool.said()
        assert "cannot close" in pool.said()


@pytest.mark.slow
def test_worker_that_is_replaced_calls_its_stop_hooks(short_directory: Path) -> None:
    with RunningPool(short_directory, app=APP) as pool:
        (worker,) = pool.broker.wait_workers(1)
        os.kill(worker.pid, signal.SIGTERM)
        assert pool.broker.wait_exit(worker.nonce).status == 0
        assert marks(pool, worker.pid)[-1] == "stop 1"


@pytest.mark.slow
def test_killed_worker_calls_no_stop_hook(short_directory: Path) -> None:
    with RunningPool(short_directory, app=APP) as pool:
        (worker,) = pool.broker.wait_workers(1)
        os.kill(worker.pid, signal.SIGKILL)
        pool.broker.wait_exit(worker.nonce)
        assert marks(pool, worker.pid) == ["start"]


@pytest.mark.slow
def test_stop_hook_that_hangs_in_c_ends_with_its_worker_and_says_where(short_directory: Path) -> None:
    with RunningPool(short_directory, app=HANGING) as pool:
        (worker,) = pool.broker.wait_workers(1)
        counter = pool.broker.put("add", 1, 1)
        pool.broker.wait_answer(counter)
        os.kill(worker.pid, signal.SIGTERM)
        assert pool.broker.wait_exit(worker.nonce, deadline_s=9).status == 1
        assert "in hang_in_c" in pool.said()


@pytest.mark.slow
def test_strike_reaches_a_context_that_hangs(short_directory: Path) -> None:
    app = """
        @app.around_job
        def slow_to_enter(job):
            open("entering", "w").close()
            time.sleep(60)
            yield
    """
    with RunningPool(short_directory, app=app) as pool:
        counter = pool.broker.put("pid")
        wait_until((pool.directory / "entering").exists, "the context is being entered")
        pool.broker.kill(counter, "timeout", grace_s=10)
        _, message = pool.broker.wait_answer(counter)
        assert message.outcome == "timeout"
        assert "slow_to_enter" in message.report
