"""What ends a program before its own end: exceptions and cancellations, wherever they hit. Nothing of it is left."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.argvs import IGNORES_TERM, shell
from support.leftovers import no_sentinel_lost, nothing_left, status_of_next
from support.programs import a_mark, living
from support.taken import Stuck, Taken
from support.waiting import until

from stoker import JobCancelled, JobTimeout, Permanent
from stoker.worker.commands.run import Child, CommandError, run
from stoker.worker.commands.sinks import lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60), pytest.mark.anyio]

TREE = "sleep $1 & setsid sleep $1 & echo ready; wait"
"""Two processes besides the shell, one of them in a session of its own."""

SPEAKS_LAST = "trap 'echo sorry; exit 3' TERM; echo ready; sleep $1 & wait"


class Broken:
    """A function for output that raises, at the first frame or later."""

    def __init__(self, error: BaseException, *, after: int = 0) -> None:
        self.error = error
        self.count = 0
        self._after = after

    async def take(self, frame: bytes) -> None:
        self.count += 1
        if self.count > self._after:
            raise self.error


@asynccontextmanager
async def running_tree(mark: str, **options: Any) -> AsyncGenerator[Child]:
    """All of it runs when the block begins."""
    taken = Taken()
    options.setdefault("stdout", taken.take)
    async with run(shell(TREE, mark), **options) as child:
        await until(lambda: len(living(mark)) == 3, "the shell and what it has started")
        yield child


# --- exceptions of the block -------------------------------------------------------------------------------

ERRORS: list[BaseException] = [
    *(KeyError("mine"), Permanent("no"), JobTimeout(), JobCancelled(), SystemExit(4), KeyboardInterrupt()),
    *(ExceptionGroup("several", [ValueError(), TypeError()]), ExceptionGroup("one", [ValueError()])),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
async def test_exception_of_the_block_passes_as_it_is_when_all_is_gone(error: BaseException) -> None:
    mark, cause = a_mark(), LookupError()
    error.__cause__ = cause
    with nothing_left(mark), pytest.raises(type(error)) as raised:
        async with running_tree(mark):
            raise error
    assert raised.value is error
    assert error.__cause__ is cause


async def test_exception_beats_the_failure_that_it_brings_about() -> None:
    with nothing_left(), pytest.raises(KeyError, match="mine"):
        async with running_tree(a_mark()):
            raise KeyError("mine")


async def test_exception_when_the_program_has_ended_already() -> None:
    with nothing_left(), pytest.raises(KeyError, match="mine"):
        async with run(shell("exit 3")) as child:
            await child.wait()
            raise KeyError("mine")


async def test_exception_while_a_function_has_what_it_was_given() -> None:
    mark, stuck = a_mark(), Stuck()
    with nothing_left(mark), anyio.fail_after(5), pytest.raises(KeyError, match="mine"):
        async with running_tree(mark, stdout=stuck.take):
            await stuck.has_begun.wait()
            raise KeyError("mine")
    assert (stuck.count, stuck.was_cancelled) == (1, True)


async def test_leaving_the_block_by_return_waits_for_the_program() -> None:
    async def handler() -> Child:
        async with run(shell("sleep 0.05; exit 0")) as child:
            return child

    child = await handler()
    assert child.ended is not None


# --- exceptions of functions for output --------------------------------------------------------------------

POLICIES = ["block", "keep", "fail"]
RAISED = [(KeyError("mine"), policy) for policy in POLICIES] + [(error, "keep") for error in ERRORS[2:]]


@pytest.mark.parametrize(("error", "policy"), RAISED, ids=repr)
async def test_exception_of_a_function_is_raised_as_it_is_when_all_is_gone(
    error: BaseException, policy: str
) -> None:
    mark, cause = a_mark(), LookupError()
    error.__cause__ = cause
    with nothing_left(mark), anyio.fail_after(5), pytest.raises(type(error)) as raised:
        async with run(shell(TREE, mark), stdout=lines(Broken(error).take, policy=policy)):
            await anyio.sleep_forever()
    assert raised.value is error
    assert error.__cause__ is cause


async def test_exception_of_a_function_is_raised_for_who_waits() -> None:
    with nothing_left(), anyio.fail_after(5), pytest.raises(KeyError, match="mine"):
        async with run(shell(TREE, a_mark()), stdout=Broken(KeyError("mine")).take) as child:
            await child.wait()


async def test_function_that_has_failed_is_not_called_again() -> None:
    broken = Broken(KeyError("mine"), after=1)
    with nothing_left(), pytest.raises(KeyError):
        async with run(shell("echo 1; echo 2; echo 3; sleep 0.1; echo 4"), stdout=lines(broken.take)):
            pass
    assert broken.count == 2


async def test_function_that_fails_after_the_program_has_ended() -> None:
    async def take(chunk: bytes) -> None:
        await until(lambda: child.ended, "its end")
        raise KeyError("mine")

    with nothing_left(), anyio.fail_after(5), pytest.raises(KeyError, match="mine"):
        async with run(["echo"], stdout=take) as child:
            pass


async def test_function_for_gaps_that_fails() -> None:
    stuck = Stuck()
    sink = lines(stuck.take, policy="keep", bytes_max=10, lost=Broken(KeyError("mine")).take)  # type: ignore[arg-type]  # it fails before it looks
    with nothing_left(), anyio.fail_after(5), pytest.raises(KeyError, match="mine"):
        async with run(shell("echo 1; sleep 0.1; seq 100; sleep $1", a_mark()), stdout=sink):
            await stuck.has_begun.wait()
            stuck.may_go.set()
            await anyio.sleep_forever()


async def test_listener_that_fails() -> None:
    def said(chunk: bytes) -> None:
        raise KeyError("mine")

    mark = a_mark()
    with nothing_left(mark), anyio.fail_after(5), pytest.raises(KeyError, match="mine"):
        async with run(shell(SPEAKS_LAST, mark), said=said):
            await anyio.sleep_forever()


async def test_both_functions_fail_and_one_of_it_is_raised() -> None:
    mark = a_mark()
    with nothing_left(mark), anyio.fail_after(5), pytest.raises(KeyError, match="mine"):
        async with run(
            shell("echo >&2; " + TREE, mark),
            stdout=Broken(KeyError("mine")).take,
            stderr=Broken(KeyError("mine too")).take,
        ):
            await anyio.sleep_forever()


async def test_failure_of_a_function_comes_before_what_the_block_makes_of_it() -> None:
    mark = a_mark()
    with nothing_left(mark), anyio.fail_after(5), pytest.raises(KeyError, match="mine") as raised:
        async with run(shell(TREE, mark), stdout=Broken(KeyError("mine")).take):
            try:
                await anyio.sleep_forever()
            finally:
                raise RuntimeError("of the block, after it")
    assert isinstance(raised.value.__context__, RuntimeError)


async def test_exception_of_the_block_comes_before_a_function_that_fails_after_it() -> None:
    mark, taken = a_mark(), Broken(RuntimeError("of the function, after it"), after=1)
    with nothing_left(mark), anyio.fail_after(5), pytest.raises(KeyError, match="mine"):
        async with run(shell(SPEAKS_LAST, mark), stdout=lines(taken.take)):
            await until(lambda: taken.count, "that it is ready")
            raise KeyError("mine")
    assert taken.count == 2


async def test_function_that_is_no_coroutine_function_is_an_error() -> None:
    with nothing_left(), anyio.fail_after(5), pytest.raises(TypeError, match="await"):
        async with run(["echo"], stdout=list[bytes]().append):  # type: ignore[arg-type]  # it is wrong
            pass


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("policy", POLICIES)
async def test_cancellation_that_nobody_asked_for_is_a_failure(policy: str) -> None:
    mark = a_mark()

    async def take(line: bytes) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel("by somebody")
        await future

    with nothing_left(mark), anyio.fail_after(5), pytest.raises(asyncio.CancelledError, match="by somebody"):
        async with run(shell(TREE, mark), stdout=lines(take, policy=policy)):
            await anyio.sleep_forever()


# --- while it is being ended -------------------------------------------------------------------------------


async def test_what_it_says_when_it_is_told_to_end_is_heard() -> None:
    heard = list[bytes]()
    with nothing_left(), anyio.move_on_after(0.5) as scope:
        async with run(shell(SPEAKS_LAST, a_mark()), said=heard.append):
            await until(lambda: heard, "that it is ready")
            scope.cancel()
            await anyio.sleep_forever()
    assert b"".join(heard) == b"ready\nsorry\n"


async def test_nobody_who_reads_does_not_keep_it_from_ending_by_itself() -> None:
    begun_s, broken = time.monotonic(), Broken(KeyError("mine"))
    program = shell("trap 'head -c 3000000 /dev/zero; exit 3' TERM; echo ready; sleep $1 & wait", a_mark())
    children = list[Child]()
    with nothing_left(), pytest.raises(KeyError, match="mine"):
        async with run(program, stdout=broken.take, grace_s=15) as child:
            children.append(child)
            await anyio.sleep_forever()
    assert [child.ended and child.ended.status for child in children] == [3]
    assert time.monotonic() - begun_s < 10


async def test_outside_of_the_block_its_end_is_heard_of_as_well() -> None:
    mark, ends = a_mark(), list[bool]()

    async def watch(child: Child) -> None:
        ends.append(await child.wait() is child.ended)

    with nothing_left(mark), anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            with pytest.raises(KeyError, match="mine"):
                async with running_tree(mark, stdout=Stuck().take) as child:
                    group.start_soon(watch, child)
                    raise KeyError("mine")
    assert ends == [True]


# --- cancellation ------------------------------------------------------------------------------------------


async def in_block(mark: str) -> None:
    async with running_tree(mark):
        await anyio.sleep_forever()


async def in_wait(mark: str) -> None:
    async with running_tree(mark) as child:
        await child.wait()


async def at_the_end(mark: str) -> None:
    async with running_tree(mark):
        pass


async def in_function(mark: str) -> None:
    async with running_tree(mark, stdout=Stuck().take):
        pass


async def in_function_beside(mark: str) -> None:
    async with running_tree(mark, stdout=lines(Stuck().take, policy="keep")):
        pass


async def in_grace(mark: str) -> None:
    async with run(shell(IGNORES_TERM, mark), grace_s=0.4) as child:
        await until(lambda: living(mark), "the program")
        await child.end(0.4)


async def in_feed(mark: str) -> None:
    async with running_tree(mark, stdin=bytes(10_000_000)):
        pass


WHERE: list[Callable[[str], Coroutine[Any, Any, None]]] = [
    *(in_block, in_wait, at_the_end, in_function, in_function_beside, in_grace, in_feed)
]


@pytest.mark.parametrize("where", WHERE, ids=lambda where: where.__name__)
async def test_cancelled_nothing_is_left(where: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    mark = a_mark()
    with no_sentinel_lost(mark):
        async with anyio.create_task_group() as group:
            group.start_soon(where, mark)
            await until(lambda: living(mark), "the program")
            group.cancel_scope.cancel()
        assert living(mark) == set()
        assert await status_of_next() == 7


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("where", WHERE, ids=lambda where: where.__name__)
async def test_cancelled_by_the_means_of_asyncio_itself(where: Callable[[str], Any]) -> None:
    mark = a_mark()
    with no_sentinel_lost(mark):
        task = asyncio.create_task(where(mark))
        await until(lambda: living(mark), "the program")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert living(mark) == set()
        assert await status_of_next() == 7


async def test_cancelled_before_it_begins_nothing_is_started() -> None:
    """Or it would be found that there is no such program."""
    with no_sentinel_lost(), anyio.CancelScope() as scope:
        scope.cancel()
        async with run(["/no-such-program"]):
            pass
    assert scope.cancelled_caught


async def ended_after(turns: int, mark: str) -> None:
    """Cancelled when the loop has turned so often, between a few microseconds and the life of a program."""
    async with anyio.create_task_group() as group:
        group.start_soon(in_block, mark)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()


async def test_cancelled_at_any_turn_of_the_loop_nothing_is_left() -> None:
    mark = a_mark()
    with no_sentinel_lost(mark):
        for turns in (*range(12), *(round(12 * 1.35**more) for more in range(22))):
            await ended_after(turns, mark)
            assert living(mark) == set(), turns
            assert await status_of_next(turns % 200 + 1) == turns % 200 + 1


async def test_cancelled_at_any_moment_nothing_is_left() -> None:
    mark = a_mark()
    with no_sentinel_lost(mark):
        for moment in range(40):
            with anyio.move_on_after(moment * 0.0004) as scope:
                async with run(shell(TREE, mark), stdin=bytes(100_000)):
                    await anyio.sleep_forever()
            assert scope.cancelled_caught
            assert living(mark) == set(), moment
            assert await status_of_next(moment + 1) == moment + 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelled_at_any_moment_by_the_means_of_asyncio_itself() -> None:
    mark = a_mark()
    with no_sentinel_lost(mark):
        for moment in range(40):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(in_block(mark), moment * 0.0004)
            assert living(mark) == set(), moment
            assert await status_of_next(moment + 1) == moment + 1


async def test_deadline_within_the_grace_changes_nothing() -> None:
    mark, begun_s = a_mark(), time.monotonic()
    with no_sentinel_lost(mark), pytest.raises(KeyError, match="mine"), anyio.CancelScope() as scope:
        async with run(shell(IGNORES_TERM, mark), grace_s=0.6):
            scope.deadline = anyio.current_time() + 0.3
            raise KeyError("mine")
    assert scope.cancel_called
    assert time.monotonic() - begun_s >= 0.6


async def test_cancelled_within_the_grace_of_another_cancellation() -> None:
    mark, begun_s = a_mark(), time.monotonic()
    with no_sentinel_lost(mark), anyio.CancelScope() as outer, anyio.CancelScope() as inner:
        async with run(shell(IGNORES_TERM, mark), grace_s=0.6):
            outer.deadline = anyio.current_time() + 0.3
            inner.cancel()
            await anyio.sleep_forever()
    assert outer.cancel_called
    assert time.monotonic() - begun_s >= 0.6


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelled_again_and_again_by_the_means_of_asyncio_itself() -> None:
    mark = a_mark()
    with no_sentinel_lost(mark):
        for moment in range(15):
            task = asyncio.create_task(in_block(mark))
            await asyncio.wait([task], timeout=moment * 0.001)
            while not task.done():
                task.cancel()
                await anyio.lowlevel.checkpoint()
            assert task.cancelled()
            assert living(mark) == set(), moment
        assert await status_of_next() == 7


async def test_program_whose_neighbour_fails_ends_with_it() -> None:
    mark = a_mark()

    async def fail() -> None:
        await until(lambda: living(mark), "the program")
        raise KeyError("mine")

    with nothing_left(mark), pytest.raises(ExceptionGroup) as raised:
        async with anyio.create_task_group() as group:
            group.start_soon(fail)
            group.start_soon(in_block, mark)
    assert [type(each) for each in raised.value.exceptions] == [KeyError]


async def test_block_that_does_not_want_to_end_keeps_its_program() -> None:
    """A clean-up that is shielded, say: the program runs, and does not wait for somebody who reads."""
    mark, said = a_mark(), list[bytes]()
    text = "echo ready; read line; head -c 3000000 /dev/zero"
    with nothing_left(mark), anyio.fail_after(5), anyio.CancelScope() as scope:
        async with run(shell(text, mark), stdout=Stuck().take, said=said.append, stdin=b"\n") as child:
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await until(lambda: child.ended, "its end")
    assert len(b"".join(said)) == 3_000_006


async def test_error_of_the_program_is_no_news_after_a_cancellation() -> None:
    with anyio.move_on_after(0.1), pytest.raises(BaseException) as raised:
        async with run(shell("trap 'exit 3' TERM; sleep $1 & wait", a_mark())):
            await anyio.sleep_forever()
    assert not isinstance(raised.value, CommandError)


async def test_nested_programs_end_from_the_inside() -> None:
    outer, inner = a_mark(), a_mark()
    with nothing_left(outer, inner), pytest.raises(KeyError, match="mine"):
        async with running_tree(outer), running_tree(inner):
            raise KeyError("mine")


async def test_failure_of_an_inner_program_ends_the_outer_one() -> None:
    mark = a_mark()
    with nothing_left(mark), pytest.raises(CommandError) as raised:
        async with running_tree(mark), run(shell("exit 3")):
            pass
    assert raised.value.status == 3


async def test_function_of_the_outer_program_fails_while_the_inner_runs() -> None:
    outer, inner = a_mark(), a_mark()
    broken = Broken(KeyError("mine"))
    with nothing_left(outer, inner), pytest.raises(KeyError, match="mine"):
        async with run(shell("sleep 0.2; echo; sleep $1", outer), stdout=broken.take), running_tree(inner):
            await anyio.sleep_forever()


async def test_function_may_run_programs_itself() -> None:
    taken = Taken()

    async def take(line: bytes) -> None:
        async with run(["cat"], stdin=b"<" + line + b">", stdout=taken.take):
            pass

    async with run(["seq", "5"], stdout=lines(take)):
        pass
    assert taken.text == b"<1><2><3><4><5>"


async def test_function_whose_own_program_fails() -> None:
    with nothing_left(), pytest.raises(CommandError) as raised:
        async with run(shell("echo 3; sleep $1", a_mark()), stdout=lines(exit_with)):
            await anyio.sleep_forever()
    assert raised.value.status == 3


async def exit_with(status: bytes) -> None:
    async with run(shell("exit $1", status.decode())):
        pass
