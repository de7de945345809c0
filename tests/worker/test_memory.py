"""Memory of jobs: the limit that holds while one runs, what is known of deaths at it, and what is given back."""

import contextlib
import mmap
import os
import resource
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from support.forking import forked
from support.pools import RunningPool
from support.waiting import wait_until

from stoker.proto.limits import MIB
from stoker.worker.memory import MemoryLimit, Trimmer, parse_limit, private_bytes

pytestmark = pytest.mark.slow

LIMIT = 64 * MIB

APP = """
    import errno, gc, mmap, subprocess, threading

    MIB = 1024 * 1024
    kept = []


    @app.job(memory_limit="64MiB")
    def take(mib):
        return len(bytearray(mib * MIB)) // MIB


    @app.job(memory_limit="64MiB")
    def take_without_end():
        taken = []
        while True:
            taken.append(bytearray(MIB))


    @app.job(memory_limit="64MiB")
    def take_in_a_thread():
        failed = []

        def body():
            try:
                bytearray(200 * MIB)
            except MemoryError:
                failed.append(True)

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        return failed


    @app.job(memory_limit="64MiB")
    def take_in_a_child():
        return subprocess.run([sys.executable, "-c", "bytearray(200 << 20)"], capture_output=True).returncode


    @app.job(memory_limit="64MiB")
    def map_memory():
        mmap.mmap(-1, 200 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


    @app.job(memory_limit="64MiB")
    def other_error():
        raise OSError(errno.ENOENT, "not the memory")


    @app.job(memory_limit="64MiB")
    def own_words():
        raise MemoryError("the matrix is too large")


    def fill(mib):
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        for _ in range(mib):
            block = libc.malloc(MIB)
            if not block:
                return
            ctypes.memset(block, 1, MIB)


    @app.job(memory_limit="64MiB")
    def abort_at_the_limit():
        fill(100)
        os.abort()


    @app.job(memory_limit="64MiB")
    def abort_below_it():
        fill(8)
        os.abort()


    @app.job
    def take_unlimited(mib):
        return len(bytearray(mib * MIB)) // MIB


    @app.job
    def keep_garbage(mib):
        class Knot:
            pass

        gc.disable()
        for _ in range(mib * 16):
            knot = Knot()
            knot.self, knot.data = knot, bytearray(b"x") * (64 * 1024)
        gc.enable()
        # Above all of it, so that free memory below does not go back by itself.
        kept.append(bytearray(64 * 1024))
"""


@pytest.fixture
def pool(short_directory: Path) -> Iterator[RunningPool]:
    with RunningPool(short_directory, app=APP) as pool:
        pool.broker.wait_workers(1)
        yield pool


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- the limit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["take_without_end", "map_memory"])
def test_handler_that_takes_too_much_ends_as_memory_and_its_worker_lives_on(
    pool: RunningPool, kind: str
) -> None:
    pid = pool.broker.wait_result(pool.broker.put("pid"))
    _, message = pool.broker.wait_answer(pool.broker.put(kind))
    assert (message.outcome, message.reason) == ("memory", "MemoryError: over its memory limit of 64MiB")
    assert f"in {kind}" in message.report
    assert pool.broker.wait_result(pool.broker.put("pid")) == pid


def test_sibling_and_host_notice_nothing(short_directory: Path) -> None:
    with RunningPool(short_directory, app=APP, workers=2) as pool:
        pool.broker.wait_workers(2)
        sibling = pool.broker.put("sleep", 1)
        greedy = pool.broker.put("take_without_end")
        assert pool.broker.wait_answer(greedy)[1].outcome == "memory"
        assert all(resident(worker.pid) < LIMIT + 64 * MIB for worker in pool.broker.workers())
        assert pool.broker.wait_result(sibling) == "slept"
        assert pool.broker.all_of("exited") == []


def test_limit_is_on_top_of_what_the_worker_has_and_lifted_afterwards(pool: RunningPool) -> None:
    for _ in range(3):
        assert pool.broker.wait_result(pool.broker.put("take", 40)) == 40
        assert pool.broker.wait_answer(pool.broker.put("take", 80))[1].outcome == "memory"
        assert pool.broker.wait_result(pool.broker.put("take_unlimited", 200)) == 200


def test_threads_and_programs_of_the_job_are_limited_too(pool: RunningPool) -> None:
    assert pool.broker.wait_result(pool.broker.put("take_in_a_thread")) == [True]
    assert pool.broker.wait_result(pool.broker.put("take_in_a_child")) == 1


def test_other_errors_and_a_handlers_own_words_stay_as_they_are(pool: RunningPool) -> None:
    _, other = pool.broker.wait_answer(pool.broker.put("other_error"))
    _, own = pool.broker.wait_answer(pool.broker.put("own_words"))
    assert (other.outcome, "not the memory" in other.reason) == ("error", True)
    assert (own.outcome, own.reason) == ("memory", "MemoryError: the matrix is too large")


def test_limit_of_the_pool_is_for_kinds_that_declare_none(short_directory: Path) -> None:
    with RunningPool(short_directory, app=APP, memory_max=128 * MIB) as pool:
        assert pool.broker.wait_result(pool.broker.put("take_unlimited", 100)) == 100
        assert pool.broker.wait_answer(pool.broker.put("take_unlimited", 200))[1].outcome == "memory"
        assert pool.broker.wait_answer(pool.broker.put("take", 100))[1].outcome == "memory"


# --- deaths at it ----------------------------------------------------------------------------------------


def test_death_by_signal_at_the_limit_is_reported_as_memory(pool: RunningPool) -> None:
    # Neither an earlier job nor an earlier limit may be taken for this one.
    pool.broker.wait_result(pool.broker.put("take_unlimited", 200))
    exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(pool.broker.put("abort_at_the_limit")))
    assert (exited.signal, exited.over_memory) == (6, True)


@pytest.mark.parametrize("before", ["take_unlimited", "take"])
def test_death_below_the_limit_is_a_crash(pool: RunningPool, before: str) -> None:
    pool.broker.wait_answer(pool.broker.put(before, 200))
    exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(pool.broker.put("abort_below_it")))
    assert (exited.signal, exited.over_memory) == (6, False)


def test_death_of_a_job_without_a_limit_is_a_crash(pool: RunningPool) -> None:
    pool.broker.wait_result(pool.broker.put("take", 40))
    exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(pool.broker.put("kill_self", 6)))
    assert (exited.signal, exited.over_memory) == (6, False)


# --- giving back -----------------------------------------------------------------------------------------


def test_what_a_big_job_left_is_collected_and_given_back(pool: RunningPool) -> None:
    (worker,) = pool.broker.wait_workers(1)
    before = resident(worker.pid)
    pool.broker.wait_result(pool.broker.put("keep_garbage", 100))
    wait_until(lambda: resident(worker.pid) < before + 40 * MIB, "the memory is given back")


# --- by itself, in a process that may be spoiled ------------------------------------------------------------


def ends_well(body: Callable[[], bool]) -> bool:
    return os.waitpid(forked(body), 0)[1] == 0


def test_limit_of_an_administrator_is_never_raised_and_comes_back() -> None:
    def body() -> bool:
        data = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        theirs = (data + 16 * MIB, resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_DATA, theirs)
        marks: list[int] = []
        limit = MemoryLimit(LIMIT, marks.append)
        during = limit.within(resource.getrlimit)(resource.RLIMIT_DATA)
        return during == theirs == resource.getrlimit(resource.RLIMIT_DATA) and marks[-1] == 0

    assert ends_well(body)


def test_without_a_way_to_reset_the_peak_there_is_no_mark() -> None:
    def body() -> bool:
        # A child with a higher peak than the mark would be, which nothing can reset.
        os.waitpid(forked(lambda: bool(bytearray(300 * MIB))), 0)
        marks: list[int] = []
        MemoryLimit(LIMIT, marks.append).within(lambda: None)()
        return marks == [0, 0]

    assert ends_well(body)


@contextlib.contextmanager
def grown_by(size: int) -> Generator[None]:
    # Pages from the kernel: an allocator may still have that much from what earlier tests gave back.
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        pages.write(b"x" * size)
        yield


def test_trimmer_looks_only_at_growth_since_the_last_time() -> None:
    trimmer = Trimmer(8 * MIB)
    assert not trimmer.job_ended()
    with grown_by(16 * MIB):
        assert trimmer.job_ended()
        assert not trimmer.job_ended()
        assert private_bytes() > 16 * MIB


def test_sizes_are_read_as_everywhere() -> None:
    assert (parse_limit("64MiB"), parse_limit(LIMIT)) == (LIMIT, LIMIT)
