"""The supervisor with real processes: deaths of anybody, kills, drains, and what is reported of them."""

import os
import signal
import time
from pathlib import Path

import pytest
from support.pools import RunningPool, children_of, is_alive
from support.waiting import wait_until

from stoker.config.exits import Exit

pytestmark = pytest.mark.slow

TREES = """
    import subprocess

    STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


    @app.job
    def grow(path, then):
        children = [
            subprocess.Popen(["sleep", "600"]).pid,
            subprocess.Popen(["sleep", "600"], start_new_session=True).pid,
            subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=True).pid,
        ]
        if (middle := os.fork()) == 0:
            os.setsid()
            if os.fork() == 0:
                open(path + ".orphan", "w").write(str(os.getpid()))
                time.sleep(600)
            os._exit(0)
        os.waitpid(middle, 0)
        while not os.path.exists(path + ".orphan"):
            time.sleep(0.01)
        open(path, "w").write(" ".join(map(str, children)))
        if then == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            try:
                time.sleep(600)
            except BaseException:
                if then == "yield":
                    raise
"""


def pids_of(path: Path) -> list[int]:
    orphan = Path(f"{path}.orphan")
    wait_until(lambda: path.exists() and path.read_text() and orphan.read_text(), "the tree has grown")
    return [int(pid) for pid in (path.read_text() + " " + orphan.read_text()).split()]


def wait_gone(pids: list[int], *, within_s: float) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), f"{pids} ended", deadline_s=within_s)


def begin(pool: RunningPool, seconds: float, name: str = "began") -> int:
    """A job that sleeps and has begun; its token's counter."""
    path = pool.directory / name
    counter = pool.broker.put("touch_and_sleep", str(path), seconds)
    wait_until(path.exists, "the job began")
    return counter


def test_line_that_names_a_struck_attempt_stands_before_its_stack(short_directory: Path) -> None:
    with RunningPool(short_directory) as pool:
        counter = begin(pool, 30)
        pool.broker.kill(counter, "timeout", grace_s=30)
        assert pool.broker.wait_answer(counter)[1].outcome == "timeout"
        before, _, stack = pool.said().partition(f"token=1.{counter} reason=timeout")
        assert "attempt_struck pid=" in before.splitlines()[-1]
        assert "touch_and_sleep" in stack
        assert "most recent call first" not in before


# --- deaths -----------------------------------------------------------------------------------------


def test_crash_of_one_worker_leaves_the_others_alone(short_directory: Path) -> None:
    with RunningPool(short_directory, workers=4) as pool:
        pool.broker.wait_workers(4)
        others = [begin(pool, 1.0, f"began-{number}") for number in range(3)]
        crash = pool.broker.put("kill_self", int(signal.SIGSEGV))
        exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(crash), deadline_s=1)
        assert (exited.tokens, exited.signal, exited.swept) == ([[1, crash]], signal.SIGSEGV, True)
        assert [pool.broker.wait_answer(counter)[0] for counter in others] == ["ack"] * 3
        pool.broker.wait_workers(4)


def test_tree_of_a_dead_worker_is_gone_before_its_end_is_reported(short_directory: Path) -> None:
    with RunningPool(short_directory, app=TREES) as pool:
        path = short_directory / "tree"
        counter = pool.broker.put("grow", str(path), "die")
        exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter))
        assert exited.swept
        assert [pid for pid in pids_of(path) if is_alive(pid)] == []


def test_tree_of_a_killed_attempt_is_gone_before_its_end_is_reported(short_directory: Path) -> None:
    with RunningPool(short_directory, app=TREES) as pool:
        path = short_directory / "tree"
        counter = pool.broker.put("grow", str(path), "stay")
        pids = pids_of(path)
        pool.broker.kill(counter, "lost", grace_s=0)
        assert pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter)).swept
        assert [pid for pid in pids if is_alive(pid)] == []


def test_tree_of_a_struck_handler_is_gone_before_it_is_answered(short_directory: Path) -> None:
    with RunningPool(short_directory, app=TREES) as pool:
        path = short_directory / "tree"
        counter = pool.broker.put("grow", str(path), "yield")
        pids = pids_of(path)
        pool.broker.kill(counter, "cancelled", grace_s=30)
        assert pool.broker.wait_answer(counter)[1].outcome == "cancelled"
        assert [pid for pid in pids if is_alive(pid)] == []


def test_nothing_outlives_the_supervisor_by_two_seconds(short_directory: Path) -> None:
    with RunningPool(short_directory, workers=2, app=TREES) as pool:
        path = short_directory / "tree"
        pool.broker.put("grow", str(path), "stay")
        pids = pids_of(path)
        pids += [worker.pid for worker in pool.broker.wait_workers(2)] + [pool.zygote_pid()]
        pool.process.kill()
        wait_gone(pids, within_s=2)


def test_tree_of_a_worker_is_gone_before_the_worker_itself_when_the_supervisor_dies(
    short_directory: Path,
) -> None:
    """By the end of the worker the broker knows that its job is free."""
    with RunningPool(short_directory, workers=4, app=TREES) as pool:
        paths = [short_directory / f"tree-{number}" for number in range(4)]
        for path in paths:
            pool.broker.put("grow", str(path), "stay")
        trees = [pids_of(path) for path in paths]
        workers = [worker.pid for worker in pool.broker.workers()]
        pool.process.kill()
        wait_until(lambda: not all(map(is_alive, workers)), "a worker ended", deadline_s=2)
        assert [pid for tree in trees for pid in tree if is_alive(pid)] == []


def test_tree_of_a_worker_that_died_just_before_its_supervisor_is_not_forgotten(
    short_directory: Path,
) -> None:
    with RunningPool(short_directory, app=TREES) as pool:
        path = short_directory / "tree"
        pool.broker.put("grow", str(path), "stay")
        pids = pids_of(path)
        (worker,) = pool.broker.workers()
        # In this order, and both before anybody can act on the first.
        pool.process.send_signal(signal.SIGSTOP)
        os.kill(worker.pid, signal.SIGKILL)
        wait_gone([worker.pid], within_s=5)
        pool.process.kill()
        wait_gone(pids, within_s=2)


def test_job_about_to_end_can_end_when_the_supervisor_dies(short_directory: Path) -> None:
    with RunningPool(short_directory) as pool:
        counter = begin(pool, 0.4)
        pool.process.kill()
        assert pool.broker.wait_answer(counter)[0] == "ack"


def test_death_of_the_zygote_charges_no_job_and_the_pool_goes_on(short_directory: Path) -> None:
    with RunningPool(short_directory, workers=2, app=TREES) as pool:
        path = short_directory / "tree"
        counter = pool.broker.put("grow", str(path), "stay")
        pids = pids_of(path)
        zygote = pool.zygote_pid()
        os.kill(zygote, signal.SIGKILL)
        exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter))
        assert (exited.tokens, exited.shutdown, exited.signal) == ([[1, counter]], True, 9)
        wait_gone(pids, within_s=1)
        assert pool.broker.wait_result(pool.broker.put("add", 1, 1)) == 2
        assert pool.zygote_pid() != zygote


def test_zygote_that_is_killed_while_it_imports_is_started_again_in_a_pool_that_has_served(
    short_directory: Path,
) -> None:
    second_import_dies = """
        with open("imports", "a+") as file:
            file.write(".")
            file.seek(0)
            if file.read() == "..":
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
    """
    with RunningPool(short_directory, app=second_import_dies) as pool:
        assert pool.broker.wait_result(pool.broker.put("add", 1, 1)) == 2
        os.kill(pool.zygote_pid(), signal.SIGKILL)
        imports = short_directory / "imports"
        wait_until(lambda: imports.read_text() == "...", "a third import", deadline_s=20)
        assert pool.broker.wait_result(pool.broker.put("add", 1, 2)) == 3


def test_zygote_that_hangs_is_replaced_and_the_end_of_its_worker_still_reported(
    short_directory: Path,
) -> None:
    with RunningPool(short_directory) as pool:
        counter = begin(pool, 600)
        zygote = pool.zygote_pid()
        os.kill(zygote, signal.SIGSTOP)
        os.kill(pool.broker.wait_holder(counter).pid, signal.SIGSEGV)
        exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter), deadline_s=20)
        assert (exited.tokens, exited.signal, exited.shutdown) == ([[1, counter]], signal.SIGSEGV, False)
        assert pool.broker.wait_result(pool.broker.put("add", 1, 1)) == 2
        assert not is_alive(zygote)


def test_pool_with_a_stopped_zygote_still_drains(short_directory: Path) -> None:
    with RunningPool(short_directory) as pool:
        pool.broker.wait_workers(1)
        os.kill(pool.zygote_pid(), signal.SIGSTOP)
        assert pool.terminate() == Exit.OK


def test_dead_workers_leave_no_zombies(short_directory: Path) -> None:
    with RunningPool(short_directory, app=TREES) as pool:
        counter = pool.broker.put("grow", str(short_directory / "tree"), "die")
        pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter))
        family = {pool.pid, pool.zygote_pid()}
        wait_until(lambda: not zombies_of(family), "everything is reaped")


def zombies_of(parents: set[int]) -> list[str]:
    stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    fields = [text[text.rindex(")") + 2 :].split() for text in stats]
    return [field[0] for field in fields if field[0] == "Z" and int(field[1]) in parents]


def test_report_is_repeated_to_the_next_broker_until_it_is_answered(short_directory: Path) -> None:
    with RunningPool(short_directory) as pool:
        pool.broker.withhold = lambda op: op == "exited"
        counter = pool.broker.put("kill_self", 9)
        first = pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter))
        pool.broker.stop()
        pool.broker.withhold = lambda op: False
        pool.broker.start()
        wait_until(lambda: len(pool.broker.all_of("exited")) == 2, "the report came again")
        assert pool.broker.all_of("exited") == [first, first]
        # Until it was answered, the dead worker was still among those that may hold something.
        assert first.worker in pool.broker.all_of("pool")[-1].workers


# --- liveness ---------------------------------------------------------------------------------------


def beats_for(pool: RunningPool, nonce: str) -> int:
    return sum(nonce in beat.workers for beat in pool.broker.all_of("heartbeat"))


def test_handler_that_holds_the_interpreter_lock_is_beaten_for(short_directory: Path) -> None:
    app = """
        @app.job
        def hold_lock(seconds):
            ctypes.PyDLL(None).sleep(seconds)
    """
    with RunningPool(short_directory, app=app) as pool:
        counter = pool.broker.put("hold_lock", 1)
        nonce = pool.broker.wait_holder_nonce(counter)
        before = beats_for(pool, nonce)
        assert pool.broker.wait_answer(counter)[0] == "ack"
        assert beats_for(pool, nonce) - before >= 5


def test_stopped_worker_is_not_beaten_for(short_directory: Path) -> None:
    with RunningPool(short_directory) as pool:
        begin(pool, 30)
        (worker,) = pool.broker.workers()
        os.kill(worker.pid, signal.SIGSTOP)
        pool.broker.barrier()
        before = beats_for(pool, worker.nonce)
        pool.broker.barrier()
        assert beats_for(pool, worker.nonce) == before


# --- starting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("raise ValueError('broken at import')", "broken at import"),
        ("sys.exit(0)", "SystemExit"),
        ("app = 7", "int"),
    ],
)
def test_app_that_does_not_import_ends_the_pool_with_its_traceback(
    short_directory: Path, app: str, said: str
) -> None:
    with RunningPool(short_directory, app=app) as pool:
        assert pool.process.wait(10) == Exit.UNAVAILABLE
        assert said in pool.said()


def test_syntax_error_names_its_line(short_directory: Path) -> None:
    with RunningPool(short_directory, app="def broken(:") as pool:
        assert pool.process.wait(10) == Exit.UNAVAILABLE
        assert "SyntaxError" in pool.said()
        assert "tasks.py, line" in pool.said()


def test_workers_that_never_come_up_are_started_seldom_and_the_exit_code_says_so(
    short_directory: Path,
) -> None:
    app = """
        @app.on_start
        def hook():
            raise RuntimeError("no database")
    """
    with RunningPool(short_directory, app=app, workers=4) as pool:
        pool.wait_said("crash_loop")
        wait_until(lambda: pool.said().count("crash_loop") >= 4, "every slot waits")
        assert pool.said().count("worker_exited") <= 10
        assert "no database" in pool.said()
        assert pool.terminate() == Exit.UNAVAILABLE


def test_pool_the_broker_will_not_have_ends_and_says_why(short_directory: Path) -> None:
    with RunningPool(short_directory, refuse_pool="forbidden") as pool:
        assert pool.process.wait(10) == Exit.REFUSED
        assert "pool_refused" in pool.said()
        assert "forbidden" in pool.said()


def test_pool_waits_for_a_broker_that_is_not_there_yet(short_directory: Path) -> None:
    with RunningPool(short_directory) as pool:
        pool.broker.stop()
        pool.wait_said("broker_away")
        pool.broker.start()
        assert pool.broker.wait_result(pool.broker.put("add", 1, 1)) == 2


# --- the end ----------------------------------------------------------------------------------------


def test_drain_finishes_the_running_job_and_leaves_nothing(short_directory: Path) -> None:
    with RunningPool(short_directory, workers=2) as pool:
        pids = [worker.pid for worker in pool.broker.wait_workers(2)] + [pool.zygote_pid()]
        counter = begin(pool, 0.5)
        assert pool.terminate() == Exit.OK
        assert pool.broker.answers[counter][0][0] == "ack"
        assert not any(exited.tokens for exited in pool.broker.all_of("exited"))
        assert [pid for pid in pids if is_alive(pid)] == []


def test_one_stop_that_reaches_everybody_twice_is_one_drain(short_directory: Path) -> None:
    app = """
        import subprocess

        @app.job
        def shell(path):
            open(path, "w").close()
            return subprocess.run(["sh", "-c", "sleep 1; echo done"], capture_output=True, text=True).stdout
    """
    with RunningPool(short_directory, workers=2, app=app) as pool:
        first = begin(pool, 1.0)
        second = pool.broker.put("shell", str(short_directory / "shell"))
        wait_until((short_directory / "shell").exists, "the shell began")
        everybody = [pool.pid, pool.zygote_pid(), *(worker.pid for worker in pool.broker.workers())]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            for pid in everybody:
                os.kill(pid, number)
        assert pool.process.wait(10) == Exit.OK
        assert pool.broker.wait_answer(first)[0] == "ack"
        assert pool.broker.wait_result(second) == "done\n"


def test_what_runs_when_the_drain_is_over_is_killed_uncharged(short_directory: Path) -> None:
    with RunningPool(short_directory, drain_s=0.3) as pool:
        counter = begin(pool, 600)
        assert pool.terminate() == Exit.OK
        (exited,) = pool.broker.all_of("exited")
        assert (exited.tokens, exited.signal, exited.shutdown) == ([[1, counter]], 9, True)


def test_deliberate_second_request_shortens_the_drain(short_directory: Path) -> None:
    with RunningPool(short_directory) as pool:
        begin(pool, 600)
        pool.process.send_signal(signal.SIGTERM)
        pool.wait_said("drain_begins")
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() - begun > 1.1, "a moment has passed")
        pool.process.send_signal(signal.SIGTERM)
        assert pool.process.wait(5) == Exit.OK


def test_worker_killed_in_the_middle_of_a_drain_does_not_hold_it_up(short_directory: Path) -> None:
    with RunningPool(short_directory, workers=2) as pool:
        counter = begin(pool, 600)
        pool.process.send_signal(signal.SIGTERM)
        pool.wait_said("drain_begins")
        os.kill(pool.broker.wait_holder(counter).pid, signal.SIGKILL)
        assert pool.process.wait(10) == Exit.OK
        assert pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter)).shutdown is False


def test_stop_during_a_long_import_does_not_wait_for_it(short_directory: Path) -> None:
    with RunningPool(short_directory, app="open('importing', 'w').close(); time.sleep(60)") as pool:
        wait_until((short_directory / "importing").exists, "the import has begun")
        zygote = pool.zygote_pid()
        assert pool.terminate() == Exit.OK
        assert not is_alive(zygote)
        assert children_of(pool.pid, "stoker-zygote") == []


def test_pool_drains_without_a_broker(short_directory: Path) -> None:
    with RunningPool(short_directory) as pool:
        pool.broker.wait_workers(1)
        pool.broker.stop()
        assert pool.terminate() == Exit.OK
