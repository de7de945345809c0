"""Streams under load: floods, slow functions, whoever keeps a pipe. Memory stays bounded, and the loop is for everybody."""

import fcntl
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from support.argvs import python, shell
from support.lateness import Lateness
from support.leftovers import nothing_left
from support.own_memory import OwnMemory
from support.pipe_keeper import PipeKeeper
from support.pipes import is_blocked_in_write
from support.programs import a_mark
from support.scarce_descriptors import only
from support.taken import Counted, Stuck, Taken
from support.waiting import until

from stoker.proto import limits
from stoker.worker.commands.filter import Gap, OutputLimitError
from stoker.worker.commands.run import Child, CommandError, CommandTimeoutError, of_this_process, run
from stoker.worker.commands.sinks import DISCARD, Output, chunks, lines
from stoker.worker.commands.stream import PIPE_BYTES, PIPE_BYTES_FIRST, read_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60), pytest.mark.anyio]

MIB = limits.MIB

GROWN_BYTES_MAX = 16 * MIB
"""Of this process, whatever programs write."""

NO_NEWLINE_BYTES = 350 * MIB

LATE_S_MAX = 0.25
"""A busy machine adds much to what streams do."""

# --- block -----------------------------------------------------------------------------------------------


async def test_nothing_is_read_while_a_function_has_what_it_was_given() -> None:
    stuck = Stuck()
    async with run(["head", "-c", str(20 * MIB), "/dev/zero"], stdout=stuck.take) as child:
        await until(lambda: stuck.count and is_blocked_in_write(child.pid, 1), "the program waits")
        assert child.stdout.total_bytes < MIB
        stuck.may_go.set()
    assert child.stdout.total_bytes == 20 * MIB


async def test_pipe_is_enlarged_once_it_was_full() -> None:
    counted = Counted()

    def pipe_bytes(child: Child) -> int:
        return fcntl.fcntl(child.stdout.fileno(), fcntl.F_GETPIPE_SZ)

    async with run(shell("echo; exec sleep $1", a_mark()), stdout=counted.take, ok=None) as child:
        await until(lambda: counted.bytes, "that it said something")
        assert pipe_bytes(child) == PIPE_BYTES_FIRST
        await child.end()
    async with run(["yes"], stdout=counted.take, ok=None) as child:
        await until(lambda: pipe_bytes(child) == PIPE_BYTES, "that it is enlarged")
        await child.end()


# --- keep --------------------------------------------------------------------------------------------------


async def test_what_a_stuck_function_does_not_take_is_counted_to_the_byte() -> None:
    stuck, taken = Stuck(), Taken()

    async def take(line: bytes) -> None:
        await stuck.take(line)
        await taken.take(line)

    sink = lines(take, policy="keep", bytes_max=MIB, lost=taken.lost)
    with OwnMemory() as memory:
        async with run(shell("echo first; sleep 0.2; seq 3000000"), stdout=sink) as child:
            await until(lambda: child.ended, "its end, which waits for nobody")
            stuck.may_go.set()
    assert memory.grown_bytes < GROWN_BYTES_MAX
    first, gap, *rest = taken.all
    total_bytes = child.stdout.total_bytes
    assert (first, gap) == (b"first", Gap(total_bytes - 6 - sum(len(line) + 1 for line in taken.frames[1:])))
    assert rest == [b"%d" % number for number in range(3_000_001 - len(rest), 3_000_001)]
    assert MIB - 8 < sum(len(line) + 1 for line in taken.frames[1:]) <= MIB


async def test_function_that_takes_all_in_time_loses_nothing() -> None:
    taken = Taken()
    async with run(["seq", "1000"], stdout=lines(taken.take, policy="keep", lost=taken.lost)):
        pass
    assert taken.all == [b"%d" % number for number in range(1, 1001)]


# --- fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 1000])
async def test_limit_may_be_reached(count: int) -> None:
    counted = Counted()
    sink = chunks(counted.take, policy="fail", bytes_max=1000)
    async with run(["head", "-c", str(count), "/dev/zero"], stdout=sink):
        pass
    assert counted.bytes == count


async def test_a_byte_over_the_limit_is_an_error_after_all_before_it() -> None:
    taken = Taken()
    sink = chunks(taken.take, policy="fail", bytes_max=1000, lost=taken.lost)
    with nothing_left(), pytest.raises(OutputLimitError, match="more than 1000 bytes"):
        async with run(["head", "-c", "1001", "/dev/zero"], stdout=sink):
            pass
    assert (taken.text, taken.lost_bytes) == (bytes(1000), 1)


async def test_flood_over_the_limit_is_ended() -> None:
    mark, counted = a_mark(), Counted()
    sink = lines(counted.sort, policy="fail", bytes_max=100_000, lost=counted.lost)
    with nothing_left(mark), anyio.fail_after(5), pytest.raises(OutputLimitError):
        async with run(["yes", mark], stdout=sink):
            await anyio.sleep_forever()
    assert counted.kinds == {mark.encode()}
    assert counted.count == 100_000 // (len(mark) + 1)
    assert counted.lost_bytes >= 100_000 % (len(mark) + 1)


async def test_each_stream_has_a_limit_of_its_own() -> None:
    out, err = Counted(), Counted()
    text = "head -c 900 /dev/zero; head -c 900 /dev/zero >&2"
    sinks = [chunks(each.take, policy="fail", bytes_max=1000) for each in (out, err)]
    async with run(shell(text), stdout=sinks[0], stderr=sinks[1]):
        pass
    assert (out.bytes, err.bytes) == (900, 900)


# --- floods ------------------------------------------------------------------------------------------------


async def test_flood_of_lines() -> None:
    mark, counted = a_mark(), Counted()
    with nothing_left(mark), OwnMemory() as memory, pytest.raises(CommandTimeoutError):
        async with run(["yes", mark], stdout=lines(counted.sort), time_limit_s=1):
            pass
    assert counted.kinds <= {mark.encode(), *(mark.encode()[:cut] for cut in range(len(mark)))}
    assert counted.count > 10_000
    assert memory.grown_bytes < GROWN_BYTES_MAX


async def test_line_without_an_end_is_dropped_as_a_whole_where_that_may_be() -> None:
    taken = Taken()
    program = shell("echo first; head -c $1 /dev/zero; echo; echo last", str(NO_NEWLINE_BYTES))
    with OwnMemory() as memory:
        async with run(program, stdout=lines(taken.take, policy="keep", bytes_max=MIB, lost=taken.lost)):
            pass
    assert taken.all == [b"first", Gap(NO_NEWLINE_BYTES + 1), b"last"]
    assert memory.grown_bytes < GROWN_BYTES_MAX


async def test_line_without_an_end_is_an_error_where_nothing_may_be_lost() -> None:
    taken, begun_s = Taken(), time.monotonic()
    program = shell("echo first; head -c $1 /dev/zero", str(NO_NEWLINE_BYTES))
    with (
        nothing_left(),
        OwnMemory() as memory,
        pytest.raises(OutputLimitError, match="more than 1048576 bytes"),
    ):
        async with run(program, stdout=lines(taken.take, bytes_max=MIB)):
            pass
    assert taken.all == [b"first"]
    assert memory.grown_bytes < GROWN_BYTES_MAX
    assert time.monotonic() - begun_s < 10


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_flood_that_nobody_takes_is_read_and_dropped(stream: str) -> None:
    program = shell("head -c 100000000 /dev/zero" + (" >&2" if stream == "stderr" else ""))
    with OwnMemory() as memory:
        async with run(program) as child:
            pass
    assert getattr(child, stream).total_bytes == 100_000_000
    assert memory.grown_bytes < GROWN_BYTES_MAX


async def test_trickle_is_taken_as_it_comes() -> None:
    counted = Counted()
    trickle = """
        import os, time
        for _ in range(400):
            os.write(1, b".")
            time.sleep(0.001)
    """
    async with run(python(trickle), stdout=counted.take):
        await until(lambda: counted.count > 5, "bytes of a program that runs")
    assert counted.bytes == 400
    assert counted.count > 40


SINKS: dict[str, Callable[[Counted], Output]] = {
    "lines": lambda counted: lines(counted.take),
    "last lines": lambda counted: lines(counted.take, policy="keep"),
    "bytes": lambda counted: counted.take,
    "nobody": lambda counted: None,
}


@pytest.mark.parametrize("sink", SINKS)
async def test_floods_leave_the_loop_to_others(sink: str) -> None:
    late, mark, flowing = Lateness(), a_mark(), list[Child]()

    async def flood() -> None:
        async with run(["yes", mark], stdout=SINKS[sink](Counted())) as child:
            await until(lambda: child.stdout.total_bytes, "it flows")
            flowing.append(child)

    with nothing_left(mark), anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(flood)
            await until(lambda: len(flowing) == 20, "all of them flow")
            group.start_soon(late.run)
            await until(lambda: late.count > 50, "that it had its turns", deadline_s=20)
            group.cancel_scope.cancel()
    assert late.p99_s < LATE_S_MAX


async def test_no_more_is_read_than_was_asked_for_however_it_comes() -> None:
    """Each read of such a socket gives one piece."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.setblocking(False)
        for _ in range(3):
            theirs.send(b"x" * 600)
        assert read_all(ours.fileno(), 1000) == b"x" * 1000
        assert read_all(ours.fileno(), 1000) == b"x" * 600


# --- whoever keeps the pipe --------------------------------------------------------------------------------


async def test_what_a_program_leaves_behind_ends_with_it() -> None:
    mark, taken = a_mark(), Taken()
    with nothing_left(mark), anyio.fail_after(5):
        async with run(shell("sleep $1 & setsid sleep $1 & echo done", mark), stdout=taken.take) as child:
            pass
    assert taken.text == b"done\n"
    assert child.ended is not None
    assert (child.ended.status, child.ended.left_count) == (0, 2)
    assert not child.stdout.is_held


async def test_pipe_that_somebody_outside_keeps_is_not_waited_for(short_directory: Path) -> None:
    taken = Taken()
    with nothing_left(), PipeKeeper(short_directory / "keeper") as keeper, anyio.fail_after(5):
        async with run(keeper.argv, stdout=taken.take) as child:
            pass
        assert keeper.process.poll() is None
    assert taken.text == b"inside\n"
    assert (child.stdout.is_held, child.stderr.is_held) == (True, False)


async def test_pipe_that_somebody_outside_floods_is_read_up_to_the_end_of_the_program(
    short_directory: Path,
) -> None:
    counted = Counted()
    with nothing_left(), PipeKeeper(short_directory / "keeper", floods=True) as keeper, anyio.fail_after(5):
        async with run(keeper.argv, stdout=counted.take) as child:
            pass
        # Nobody reads any more.
        await until(lambda: keeper.process.poll() is not None, "SIGPIPE")
    assert counted.bytes >= len(b"inside\noutside")
    assert child.stdout.is_held


async def test_program_that_closes_its_streams_runs_on() -> None:
    mark = a_mark()
    with nothing_left(mark), anyio.fail_after(5):
        async with run(shell("exec >&- 2>&-; sleep $1", mark), ok=None) as child:
            await until(lambda: os.listdir(f"/proc/{child.pid}/fd") == ["0"], "it has closed them")
            assert child.ended is None
            await child.end()
    assert not child.stdout.is_held


# --- many, and too few descriptors -------------------------------------------------------------------------


async def test_fifty_at_once_are_not_mixed_up() -> None:
    found = dict[int, tuple[int | None, bytes, bytes]]()

    async def one(number: int) -> None:
        out = Taken()
        with pytest.raises(CommandError) as raised:
            async with run(
                shell("cat; echo $1 >&2; exit $1", str(number)), stdin=b"%d" % number, stdout=out.take
            ):
                pass
        found[number] = (raised.value.status, out.text, raised.value.stderr)

    with nothing_left():
        async with anyio.create_task_group() as group:
            for number in range(1, 51):
                group.start_soon(one, number)
    assert found == {number: (number, b"%d" % number, b"%d\n" % number) for number in range(1, 51)}


async def test_too_few_descriptors_are_an_error_and_nothing_is_left() -> None:
    of_this_process().warm()
    errors = list[int | None]()
    with nothing_left():
        for count in range(8):
            try:
                with only(count):
                    async with run(["true"], stdin=b"1", stdout=DISCARD):
                        pass
            except OSError as error:
                errors.append(error.errno)
    assert errors == [24] * 6
    async with run(["true"]):
        pass
