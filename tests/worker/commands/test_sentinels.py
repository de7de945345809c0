"""Programs of a worker, under Trio and asyncio: started and ended by sentinels, whatever becomes of those."""

import errno
import os
import random
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest
from support.forking import forked
from support.own_sentinels import (
    a_tree,
    nurseries,
    run,
    sentinel_of,
    sentinels_there,
    start,
)
from support.pools import is_alive
from support.programs import (
    ENV,
    a_mark,
    a_program,
    a_shell,
    living,
    lowest_free_descriptor,
    zombies_below,
)
from support.waiting import wait_until

from stoker.worker.commands import descendants
from stoker.worker.commands.program import Program
from stoker.worker.commands.sentinels import Running, SentinelLostError, Sentinels, StartError
from stoker.worker.commands.talk import Channel, Ended, Failed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60), pytest.mark.anyio]


# --- one after the other -------------------------------------------------------------------------------------


async def test_status_and_signal(sentinels: Sentinels) -> None:
    assert [(await run(sentinels, a_shell(f"exit {status}"))).status for status in (0, 3, 255)] == [0, 3, 255]
    assert (await run(sentinels, a_shell("kill -9 $$"))).signal == 9
    assert len(sentinels_there()) == 1


async def test_how_it_ended_is_told_as_often_as_it_is_asked(sentinels: Sentinels) -> None:
    running = await start(sentinels, a_shell("exit 3"))
    assert await running.wait() is await running.wait()


async def test_what_cannot_be_started_has_a_number_and_a_text(sentinels: Sentinels) -> None:
    for _ in range(3):
        with pytest.raises(StartError, match="nowhere-at-all") as caught:
            await start(sentinels, a_program("nowhere-at-all"))
        assert (caught.value.errno, str(caught.value)[:8]) == (errno.ENOENT, "ENOENT: ")
    assert (await run(sentinels, a_shell("exit 5"))).status == 5
    assert len(sentinels_there()) == 1


async def test_much_to_say_does_not_block_the_loop(sentinels: Sentinels) -> None:
    env = {b"A%d" % at: b"x" * 10_000 for at in range(100)}
    ended = await run(sentinels, a_shell('test "$(env | wc -c)" -gt 1000000', env=ENV | env))
    assert ended.status == 0


async def test_streams_that_are_closed_are_the_callers_fault(sentinels: Sentinels) -> None:
    await run(sentinels, a_program("true"))
    closed = os.open(os.devnull, os.O_RDONLY)
    os.close(closed)
    with pytest.raises(OSError, match="Bad file descriptor"):
        await sentinels.start(a_program("true"), [closed] * 3)
    assert (await run(sentinels, a_shell("exit 5"))).status == 5


async def test_warm_ones_are_there_before_they_are_wanted(sentinels: Sentinels) -> None:
    sentinels.warm(3)
    sentinels.warm(2)
    wait_until(lambda: len(sentinels_there()) == 3, "three sentinels")
    await run(sentinels, a_program("true"))
    assert len(sentinels_there()) == 3


# --- asked to end --------------------------------------------------------------------------------------------


async def test_end_with_a_grace(sentinels: Sentinels) -> None:
    running, mark = await a_tree(sentinels)
    begun_s = time.monotonic()
    await running.end(60_000)
    await running.end(300)
    ended = await running.wait()
    assert 0.3 <= time.monotonic() - begun_s < 2
    assert (ended.signal, ended.is_gone, living(mark)) == (signal.SIGKILL, True, set())
    await running.end(0)
    assert (await run(sentinels, a_shell("sleep 0.2; exit 5"))).status == 5


async def test_abandoned_program_is_killed_with_its_tree(sentinels: Sentinels) -> None:
    running, mark = await a_tree(sentinels)
    sentinel = sentinel_of(running)
    running.abandon()
    running.abandon()
    wait_until(lambda: not living(mark) and not is_alive(sentinel), "the end of all", deadline_s=2)
    for again in (running.wait, lambda: running.end(0)):
        with pytest.raises(SentinelLostError):
            await again()


async def test_whoever_waits_for_one_that_is_abandoned_is_told(sentinels: Sentinels) -> None:
    running = await start(sentinels, a_program("sleep", "600"))

    async def wait() -> None:
        with pytest.raises(SentinelLostError):
            await running.wait()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            running.abandon()


async def test_copies_of_its_socket_in_forked_processes_do_not_keep_it(sentinels: Sentinels) -> None:
    running, mark = await a_tree(sentinels)
    reader, writer = os.pipe()

    def stay() -> bool:
        os.close(writer)
        return os.read(reader, 1) == b""

    copy = forked(stay)
    running.abandon()
    wait_until(lambda: not living(mark), "its end", deadline_s=2)
    sentinels.close()
    wait_until(lambda: not nurseries(), "its end", deadline_s=2)
    os.close(writer)
    os.close(reader)
    wait_until(lambda: os.waitpid(copy, os.WNOHANG) == (copy, 0), "its end")


# --- too many descriptors ------------------------------------------------------------------------------------


async def test_worker_without_descriptors_is_told_so_and_works_again_with_some(sentinels: Sentinels) -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = lowest_free_descriptor(os.getpid())
    try:
        # Enough for nothing, for one socket, for a pair, for the line to the nursery but not for its start.
        for more in range(6):
            resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, hard))
            with pytest.raises(OSError, match="Too many open files"):
                await sentinels.start(a_program("true"), [null] * 3)
            assert lowest_free_descriptor(os.getpid()) == free
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(null)
    assert (await run(sentinels, a_shell("exit 5"))).status == 5


async def test_one_that_is_there_needs_no_more_descriptors(sentinels: Sentinels) -> None:
    await run(sentinels, a_program("true"))
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free_descriptor(os.getpid()), hard))
    try:
        running = await sentinels.start(a_shell("exit 5"), [null] * 3)
        assert (await running.wait()).status == 5
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(null)


# --- cancelled -----------------------------------------------------------------------------------------------


async def test_cancelled_at_any_time_the_next_program_gets_its_own_answer(
    sentinels: Sentinels, seed: int
) -> None:
    choice = random.Random(seed)
    big = {b"A%d" % at: b"x" * 10_000 for at in range(60)}
    mark, cancelled = a_mark(), 0
    for turn in range(60):
        env = ENV | (big if turn % 3 == 0 else {})
        text = choice.choice(("exit 100", "sleep $1 & exit 100", "exec sleep $1"))
        with anyio.move_on_after(choice.uniform(0, 0.006)) as scope:
            running = await start(sentinels, a_shell(text, mark, env=env))
            try:
                await running.wait()
            except anyio.get_cancelled_exc_class():
                running.abandon()
                raise
        cancelled += scope.cancelled_caught
        assert (await run(sentinels, a_shell(f"exit {turn}"))).status == turn, seed
    assert cancelled > 20
    wait_until(lambda: not living(mark), "the end of all", deadline_s=2)
    assert zombies_below(os.getpid()) == []


async def test_wait_that_was_cancelled_can_be_done_again(sentinels: Sentinels) -> None:
    running = await start(sentinels, a_shell("sleep 0.2; exit 3"))
    for _ in range(20):
        with anyio.move_on_after(0.002):
            await running.wait()
    assert (await running.wait()).status == 3
    assert (await run(sentinels, a_shell("exit 5"))).status == 5


async def fill(running: Running) -> None:
    """Ask for its end until no more can be said to its sentinel, which is stopped; never returns."""
    while True:
        await running.end(60_000)
        await anyio.lowlevel.checkpoint()


async def test_end_that_was_cancelled_before_it_could_be_said(sentinels: Sentinels) -> None:
    running = await start(sentinels, a_shell("trap '' TERM; while :; do sleep 0.05; done"))
    sentinel = sentinel_of(running)
    os.kill(sentinel, signal.SIGSTOP)
    with anyio.move_on_after(1) as scope:
        await fill(running)
    assert scope.cancelled_caught
    os.kill(sentinel, signal.SIGCONT)
    await running.end(0)
    assert (await running.wait()).signal == signal.SIGKILL
    assert (await run(sentinels, a_shell("sleep 0.2; exit 5"))).status == 5
    assert sentinels_there() == [sentinel]


async def test_end_that_could_not_be_said_in_time_is_not_said_to_the_next_program(
    sentinels: Sentinels,
) -> None:
    running = await start(sentinels, a_shell("sleep 0.3; exit 3"))
    sentinel = sentinel_of(running)

    async def end() -> None:
        while running.pid and is_alive(sentinel):
            await running.end(60_000)
            await anyio.lowlevel.checkpoint()

    os.kill(sentinel, signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        await anyio.to_thread.run_sync(lambda: wait_until(lambda: not is_alive(running.pid), "its end"))
        os.kill(sentinel, signal.SIGCONT)
        # It ended while its sentinel was stopped, before any of them was heard.
        assert (await running.wait()).status == 3
        assert (await run(sentinels, a_shell("sleep 0.2; exit 5"))).status == 5
        tasks.cancel_scope.cancel()
    assert sentinels_there() == [sentinel]


# --- a sentinel that does as the test says -------------------------------------------------------------------


class Owner(Sentinels):
    """Takes channels back, and says how many."""

    count = 0

    def put_back(self, channel: Channel) -> None:
        self.count += 1
        channel.socket.close()


@pytest.fixture
def made_up() -> Iterator[tuple[Owner, Running, Channel]]:
    """A program, and the other end of its line."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    owner = Owner()
    with ours, theirs:
        yield owner, Running(owner, Channel(ours)), Channel(theirs)


ENDED = Ended(3, None, 0, 0, 0, True)


async def test_end_that_cannot_be_said_does_not_wait_for_longer_than_the_program_lives(
    made_up: tuple[Owner, Running, Channel],
) -> None:
    owner, running, sentinel = made_up

    async def end() -> None:
        for _ in range(2000):
            await running.end(1)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            await anyio.wait_all_tasks_blocked()
            sentinel.send(ENDED)
            assert await running.wait() == ENDED
    assert owner.count == 1


async def test_sentinel_that_could_not_end_its_program_gets_no_other(
    made_up: tuple[Owner, Running, Channel],
) -> None:
    owner, running, sentinel = made_up
    sentinel.send(ENDED._replace(is_gone=False))
    assert not (await running.wait()).is_gone
    assert owner.count == 0
    assert not sentinel.receive()


async def test_why_nobody_is_there_is_heard_before_that_nobody_is(
    made_up: tuple[Owner, Running, Channel],
) -> None:
    _, running, sentinel = made_up
    sentinel.send(Failed(errno.EAGAIN, "EAGAIN: a sentinel"))
    sentinel.socket.close()
    with pytest.raises(StartError, match="EAGAIN: a sentinel"):
        await running.begin(a_program("true"), [0, 1, 2])


# --- many ----------------------------------------------------------------------------------------------------

KINDS = [
    ("exit $2", None),
    ("(sleep 0.01 &); exit $2", None),
    ("setsid sh -c 'sleep 0.02' & exit $2", None),
    ('"$3" -ISs -c "import os; os.fork() and os._exit(int($2))" ', None),
    ("echo; exec sleep $1", signal.SIGTERM),
    ("sleep $1 & exit $2", None),
    ("trap '' TERM; echo; (sleep $1; :) ; exit 1", signal.SIGKILL),
]
"""A program, and by which signal it ends when it is asked to after it has said something."""


async def run_one(sentinels: Sentinels, program: Program, *, ends: bool) -> Ended:
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    running = await sentinels.start(program, [null, writer, null])
    os.close(writer)
    os.close(null)
    if ends:
        await anyio.wait_readable(reader)
        await running.end(100)
    ended = await running.wait()
    os.close(reader)
    return ended


async def test_two_hundred_programs_twenty_at_a_time(sentinels: Sentinels) -> None:
    mark, wrong = a_mark(), list[object]()
    turns = iter(range(200))

    async def one_after_the_other() -> None:
        for turn in turns:
            text, number = KINDS[turn % len(KINDS)]
            program = a_shell(text, mark, str(turn), sys.executable)
            ended = await run_one(sentinels, program, ends=number is not None)
            if (ended.status, ended.signal, ended.is_gone) != (None if number else turn, number, True):
                wrong.append((turn, text, ended))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(one_after_the_other)
    assert wrong == []
    assert living(mark) == set()
    assert 1 <= len(sentinels_there()) <= 20
    assert [descendants.below(pid) for pid in sentinels_there()] == [[]] * len(sentinels_there())
    assert zombies_below(os.getpid()) == []
