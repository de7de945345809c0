"""Reloading with real processes: new code takes over or is given up, whoever dies meanwhile."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing
from support.pools import RunningPool, children_of, is_alive
from support.waiting import wait_until

from stoker.config.exits import Exit
from stoker.proto.nonce import code_of
from stoker.worker.flavour import Flavour
from stoker.worker.generation import Generation, Generations
from stoker.worker.reloading import START_MS, Reloading
from stoker.worker.slots import Slot, Slots
from stoker.worker.zygote_link import ZygoteLink

pytestmark = pytest.mark.slow

OLD = """
    @app.job
    def version():
        return "old"
"""
NEW = """
    @app.job
    def version():
        return "the new one"

    @app.job
    def only_new():
        return "only here"
"""
SLOW = "open('importing', 'w').close(); time.sleep(600)"
"""An import that does not end by itself."""

HANGING = """
    @app.on_start
    def hang():
        open("starting", "w").close()
        time.sleep(600)
"""


def version(pool: RunningPool) -> object:
    """What the code that serves says it is."""

    def is_settled() -> bool:
        # This broker would hand the job to a worker that is about to end, and not again to another.
        codes = [said.code for said in pool.broker.all_of("pool")][-1:]
        return all(code_of(peer.nonce) in codes or peer.is_busy for peer in pool.broker.workers())

    wait_until(is_settled, "only the code that serves has free workers")
    return pool.broker.wait_result(pool.broker.put("version"))


def begin(pool: RunningPool, seconds: float) -> int:
    """A job that sleeps and has begun."""
    path = pool.directory / "began"
    counter = pool.broker.put("touch_and_sleep", str(path), seconds)
    wait_until(path.exists, "the job began")
    return counter


class Idle:
    """An owner of reloading whose workers never come up."""

    is_draining = False

    def __init__(self) -> None:
        self.called_off: list[Slot] = []
        self.tell = self.change = self.give_up = lambda: None

    async def declare(self) -> None:
        await trio.lowlevel.checkpoint()

    def finish(self, slot: Slot) -> None:
        raise AssertionError("nothing of the old code is to end")

    def call_off(self, slot: Slot) -> None:
        self.called_off.append(slot)

    def has_come_up(self, generation: Generation) -> bool:
        return False


class NoProcesses(Generations):
    """Generations without zygotes."""

    def __init__(self) -> None:
        self._count = 0

    def begin(self, nursery: trio.Nursery) -> Generation:
        self._count += 1
        return Generation(self._count, cast(ZygoteLink, None))


def has_begun(pool: RunningPool, count: int) -> bool:
    """Whether so many reloads have."""
    return pool.said().count("reload_begins") >= count


def begin_slow_reload(pool: RunningPool, app: str, mark: str) -> None:
    """A reload that has come as far as the file that its code makes."""
    pool.broker.wait_workers(1)
    (old,) = pool.zygotes()
    pool.rewrite(app)
    pool.reload()
    wait_until((pool.directory / mark).exists, f"the new code is {mark}", deadline_s=20)
    assert len(pool.zygotes()) == 2
    assert old in pool.zygotes()


def wait_one_zygote(pool: RunningPool) -> int:
    wait_until(lambda: len(pool.zygotes()) == 1, "one zygote")
    return pool.zygotes()[0]


# --- new code takes over ----------------------------------------------------------------------------


def test_new_code_serves_and_the_old_is_gone(short_directory: Path) -> None:
    with RunningPool(short_directory, workers=2, app=OLD) as pool:
        assert version(pool) == "old"
        old = [pool.zygote_pid(), *(worker.pid for worker in pool.broker.wait_workers(2))]
        pool.rewrite(NEW)
        pool.reload()
        pool.wait_reloaded("done")
        wait_until(lambda: not any(map(is_alive, old)), "the old processes have ended")
        assert version(pool) == "the new one"
        assert len(pool.broker.workers()) == 2


def test_running_job_is_finished_by_the_code_that_began_it(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        counter = begin(pool, 1.5)
        old = pool.zygote_pid()
        pool.rewrite(NEW)
        pool.reload()
        pool.wait_reloaded("done")
        assert version(pool) == "the new one"
        assert counter not in pool.broker.answers
        assert is_alive(old)
        assert pool.broker.wait_answer(counter)[0] == "ack"
        assert wait_one_zygote(pool) != old


def test_old_worker_stays_until_the_broker_has_welcomed_the_one_that_replaces_it(
    short_directory: Path,
) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        (old,) = pool.broker.wait_workers(1)
        pool.broker.withhold = lambda op: op == "hello"
        pool.rewrite(NEW)
        pool.reload()
        wait_until(lambda: len(pool.broker.all_of("hello")) == 2, "the new worker says hello")
        pool.broker.barrier()
        assert version(pool) == "old"
        pool.broker.withhold = lambda op: False
        pool.wait_reloaded("done")
        wait_until(lambda: not is_alive(old.pid), "the old worker has ended")


def test_new_kinds_are_declared_before_a_worker_of_the_new_code_comes(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        pool.broker.wait_workers(1)
        pool.rewrite(NEW)
        pool.reload()
        pool.wait_reloaded("done")
        said = [(op, message) for op, message in pool.broker.received if op in ("pool", "hello")]
        assert next(op for op, message in said if "only_new" in str(message.kinds)) == "pool"


def test_workers_of_each_code_have_it_in_their_nonces(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        worker = pool.broker.wait_workers(1)[0].nonce
        old = code_of(worker)
        pool.rewrite(NEW)
        pool.reload()
        pool.wait_reloaded("done")
        pool.broker.wait_exit(worker)
        new = code_of(pool.broker.wait_holder_nonce(pool.broker.put("version")))
        assert (old[:2], new[:2]) == ("1-", "2-")
        assert old[2:] != new[2:]
        assert pool.broker.all_of("pool")[-1].code == new


def test_same_code_loaded_again_is_another_generation_with_the_same_digest(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        first = code_of(pool.broker.wait_workers(1)[0].nonce)
        pool.reload()
        pool.wait_reloaded("done")
        second = pool.broker.all_of("pool")[-1].code
        assert (first[0], second[0]) == ("1", "2")
        assert first[1:] == second[1:]


def test_new_code_without_coroutine_handlers_ends_their_workers(short_directory: Path) -> None:
    app = """
        @app.job
        async def wait():
            return "waited"
    """
    with RunningPool(short_directory, app=app) as pool:
        pool.broker.wait_workers(2)
        pool.rewrite(OLD)
        pool.reload()
        pool.wait_reloaded("done")
        assert version(pool) == "old"
        pool.broker.wait_workers(1)


def test_link_that_leads_elsewhere_by_now_is_followed_anew(short_directory: Path) -> None:
    first, second, link = (short_directory / name for name in ("first", "second", "current"))
    for directory in (first, second):
        directory.mkdir()
    link.symlink_to(first)
    with RunningPool(link, app=OLD) as pool:
        assert version(pool) == "old"
        (second / "broker.sock").symlink_to(first / "broker.sock")
        link.unlink()
        link.symlink_to(second)
        pool.rewrite(NEW)
        pool.reload()
        pool.wait_reloaded("done")
        assert version(pool) == "the new one"


# --- new code that does not work ---------------------------------------------------------------------


def test_code_that_does_not_import_is_said_with_its_traceback_and_the_old_goes_on(
    short_directory: Path,
) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        old = pool.zygote_pid()
        workers = pool.broker.wait_workers(1)
        pool.rewrite("\n\ndef broken(:")
        pool.reload()
        assert "SyntaxError" in pool.wait_reloaded("failed")
        pool.wait_said("SyntaxError")
        assert version(pool) == "old"
        assert pool.broker.workers() == workers
        assert wait_one_zygote(pool) == old


def test_code_whose_workers_do_not_come_up_is_given_up(short_directory: Path) -> None:
    app = """
        @app.on_start
        def hook():
            raise RuntimeError("no database")
    """
    with RunningPool(short_directory, workers=2, app=OLD) as pool:
        old = pool.zygote_pid()
        pool.broker.wait_workers(2)
        pool.rewrite(app)
        pool.reload()
        assert "no new worker came up" in pool.wait_reloaded("failed")
        assert version(pool) == "old"
        assert wait_one_zygote(pool) == old
        assert [kind["kind"] for kind in pool.broker.all_of("pool")[-1].kinds].count("version") == 1


@pytest.mark.trio
async def test_code_whose_workers_hang_as_they_start_is_given_up_in_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def say(event: str, **fields: object) -> None:
        said.append(event)

    owner, slots = Idle(), Slots()
    wanted, said = {Flavour.PLAIN: (2, 1)}, list[str]()
    reloading = Reloading(
        "tasks:app",
        NoProcesses(),
        slots,
        wanted,
        owner,
        say=say,
        write=lambda _: None,
    )
    async with trio.open_nursery() as nursery:
        reloading.begin(nursery)
        reloading.request("the test")
        assert reloading.candidate is not None
        reloading.imported(reloading.candidate)
        began_s = trio.current_time()
    assert trio.current_time() - began_s == pytest.approx(START_MS / 1000)
    assert (reloading.state, "within 60 s" in reloading.error) == ("failed", True)
    assert len(owner.called_off) == 2
    assert reloading.candidate is None
    assert said == ["reload_begins", "reload_failed"]


def test_kinds_that_the_broker_refuses_fail_the_reload(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        pool.broker.wait_workers(1)
        pool.broker.refused_kind = "only_new"
        pool.rewrite(NEW)
        pool.reload()
        assert "not the kind only_new" in pool.wait_reloaded("failed")
        assert version(pool) == "old"


def test_reload_after_a_failed_one_works(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        pool.broker.wait_workers(1)
        pool.rewrite("import nowhere_to_be_found")
        pool.reload()
        assert "nowhere_to_be_found" in pool.wait_reloaded("failed")
        pool.rewrite(NEW)
        pool.reload()
        assert pool.wait_reloaded("done") == ""
        assert version(pool) == "the new one"


# --- a reload during a reload ------------------------------------------------------------------------


def test_last_of_two_reloads_wins_and_nothing_of_the_other_is_left(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        begin_slow_reload(pool, SLOW, "importing")
        pool.rewrite(NEW)
        pool.reload()
        pool.wait_reloaded("done")
        assert version(pool) == "the new one"
        wait_one_zygote(pool)


def test_reload_while_new_workers_hang_as_they_start_ends_them(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        begin_slow_reload(pool, HANGING, "starting")
        hanging = [pid for zygote in pool.zygotes() for pid in children_of(zygote, "stoker-worker")]
        assert version(pool) == "old"
        pool.rewrite(NEW)
        pool.reload()
        pool.wait_reloaded("done")
        assert version(pool) == "the new one"
        wait_one_zygote(pool)
        wait_until(lambda: not any(map(is_alive, hanging)), "the workers that hung have ended")


def test_many_reloads_in_a_row_come_to_one(short_directory: Path) -> None:
    with RunningPool(short_directory, workers=2, app=OLD) as pool:
        pool.broker.wait_workers(2)
        pool.rewrite(NEW)
        for number in range(10):
            pool.reload()
            wait_until(partial(has_begun, pool, number + 1), "it began")
        pool.wait_reloaded("done")
        wait_one_zygote(pool)
        pool.broker.wait_workers(2)
        assert version(pool) == "the new one"


# --- deaths during a reload --------------------------------------------------------------------------


@pytest.mark.parametrize(("app", "mark"), [(SLOW, "importing"), (HANGING, "starting")])
def test_death_of_the_new_zygote_is_a_failed_reload_and_costs_no_job(
    short_directory: Path, app: str, mark: str
) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        old = pool.zygote_pid()
        counter = begin(pool, 1.0)
        begin_slow_reload(pool, app, mark)
        (new,) = set(pool.zygotes()) - {old}
        os.kill(new, signal.SIGKILL)
        assert "the new zygote died" in pool.wait_reloaded("failed")
        assert pool.broker.wait_answer(counter)[0] == "ack"
        assert wait_one_zygote(pool) == old


def test_death_of_the_old_zygote_leaves_the_new_code_to_take_over(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        counter = begin(pool, 600)
        old = pool.zygote_pid()
        pool.rewrite("\n    time.sleep(1.5)" + NEW)
        pool.reload()
        wait_until(lambda: len(pool.zygotes()) == 2, "a new zygote")
        os.kill(old, signal.SIGKILL)
        exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter))
        assert (exited.tokens, exited.shutdown) == ([[1, counter]], True)
        pool.wait_reloaded("done")
        assert version(pool) == "the new one"
        wait_one_zygote(pool)


def test_death_of_the_zygote_of_new_code_that_serves_starts_another(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        pool.broker.wait_workers(1)
        pool.rewrite(NEW)
        pool.reload()
        pool.wait_reloaded("done")
        wait_one_zygote(pool)
        (worker,) = pool.broker.wait_workers(1)
        os.kill(pool.zygote_pid(), signal.SIGKILL)
        pool.broker.wait_exit(worker.nonce)
        assert version(pool) == "the new one"
        wait_one_zygote(pool)


@pytest.mark.parametrize(("app", "mark"), [(SLOW, "importing"), (HANGING, "starting")])
def test_stop_during_a_reload_leaves_nothing(short_directory: Path, app: str, mark: str) -> None:
    with RunningPool(short_directory, app=OLD, drain_s=2) as pool:
        counter = begin(pool, 1.0)
        begin_slow_reload(pool, app, mark)
        pids = pool.zygotes()
        pids += [pid for zygote in pids for pid in children_of(zygote, "stoker-worker")]
        assert pool.terminate() == Exit.OK
        assert pool.broker.wait_answer(counter)[0] == "ack"
        assert [pid for pid in pids if is_alive(pid)] == []


@pytest.mark.parametrize(("app", "mark"), [(SLOW, "importing"), (HANGING, "starting")])
def test_death_of_the_supervisor_during_a_reload_leaves_nothing(
    short_directory: Path, app: str, mark: str
) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        begin(pool, 600)
        begin_slow_reload(pool, app, mark)
        pids = pool.zygotes()
        pids += [pid for zygote in pids for pid in children_of(zygote, "stoker-worker")]
        pool.process.kill()
        wait_until(lambda: not any(map(is_alive, pids)), "all of them ended", deadline_s=2)


def test_reload_goes_on_with_the_next_broker(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD) as pool:
        counter = begin(pool, 2.0)
        pool.rewrite("\n    time.sleep(1)" + NEW)
        pool.reload()
        wait_until(lambda: len(pool.zygotes()) == 2, "a new zygote")
        pool.broker.stop()
        pool.wait_said("broker_away")
        pool.broker.start()
        pool.wait_reloaded("done")
        assert pool.broker.wait_answer(counter)[0] == "ack"
        assert version(pool) == "the new one"


# --- recycling ---------------------------------------------------------------------------------------


def test_worker_that_has_done_its_share_is_replaced_and_no_job_is_lost(short_directory: Path) -> None:
    with RunningPool(short_directory, recycling=(20, 0, 0)) as pool:
        counters = [pool.broker.put("pid") for _ in range(40)]
        first = {pool.broker.wait_result(counter) for counter in counters}
        wait_until(lambda: not any(map(is_alive, first)), "the worn worker has ended")
        assert {pool.broker.answers[counter][0][0] for counter in counters} <= {"ack", "release"}
        # The stand-in for the broker would hand a job to one whose end it has not read yet.
        wait_until(lambda: not first & {peer.pid for peer in pool.broker.workers()}, "its end is read")
        assert pool.broker.wait_result(pool.broker.put("pid")) not in first


def test_worn_worker_stays_until_its_heir_is_welcomed(short_directory: Path) -> None:
    with RunningPool(short_directory, recycling=(0, 0, 1000)) as pool:
        (worker,) = pool.broker.wait_workers(1)
        pool.broker.withhold = lambda op: op == "hello"
        wait_until(lambda: len(pool.broker.all_of("hello")) == 2, "the heir says hello")
        assert pool.broker.wait_result(pool.broker.put("pid")) == worker.pid
        pool.broker.withhold = lambda op: False
        wait_until(lambda: not is_alive(worker.pid), "the worn worker has ended", deadline_s=20)


def test_worker_that_keeps_much_memory_is_replaced(short_directory: Path) -> None:
    app = """
        KEPT = []

        @app.job
        def keep(mib):
            KEPT.append(bytearray(os.urandom(1024) * 1024 * mib))
            return os.getpid()
    """
    with RunningPool(short_directory, app=app, recycling=(0, 64 << 20, 0)) as pool:
        pool.broker.wait_workers(1)
        small = pool.broker.wait_result(pool.broker.put("keep", 16))
        assert pool.broker.wait_result(pool.broker.put("keep", 80)) == small
        wait_until(lambda: not is_alive(small), "the large worker has ended", deadline_s=15)
        pool.wait_said("of its own")
        assert pool.broker.wait_result(pool.broker.put("add", 1, 1)) == 2


# --- watching ----------------------------------------------------------------------------------------


def test_changed_file_is_loaded_and_a_mistake_in_it_is_shown_and_then_mended(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD, watch=True) as pool:
        assert version(pool) == "old"
        pool.rewrite("def broken(:")
        pool.wait_reloaded("failed")
        pool.wait_said("SyntaxError")
        assert version(pool) == "old"
        pool.rewrite(NEW)
        pool.wait_reloaded("done")
        assert version(pool) == "the new one"


def test_module_that_the_app_imports_is_watched_also_when_it_is_not_there_yet(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD, watch=True) as pool:
        pool.broker.wait_workers(1)
        pool.rewrite("import elsewhere")
        assert "elsewhere" in pool.wait_reloaded("failed")
        pool.rewrite("THERE = True", name="elsewhere")
        pool.wait_reloaded("done")
        pool.rewrite("THERE = 'changed'", name="elsewhere")
        wait_until(lambda: pool.said().count("reload_done") == 2, "it was loaded again")


def test_files_are_not_watched_unless_that_is_asked_for(short_directory: Path) -> None:
    with RunningPool(short_directory, app=OLD, recycling=(0, 0, 1000)) as pool:
        pool.broker.wait_workers(1)
        pool.rewrite(NEW)
        # Long enough for a worker to have been replaced, and that by the old code.
        pool.wait_said("worker_exited")
        assert version(pool) == "old"
        assert "reload_begins" not in pool.said()
