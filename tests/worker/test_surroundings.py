"""What one job leaves behind, the next does not find; in real workers, one job after the other."""

import contextvars
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.forking import forked
from support.pools import RunningPool
from support.waiting import wait_until

from stoker.worker import process
from stoker.worker.surroundings import Surroundings

pytestmark = pytest.mark.slow

APP = """
    import contextvars

    LOCAL = contextvars.ContextVar("local", default="at the start")
    HOME = contextvars.ContextVar("home", default="not set")


    @app.on_start
    def set_up():
        HOME.set("by the start hook")
        os.environ["SET_BY"] = "the start hook"
        os.umask(0o027)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


    @app.job
    def look():
        umask = os.umask(0)
        os.umask(umask)
        return {
            "pid": os.getpid(),
            "context": [LOCAL.get(), HOME.get()],
            "directory": os.getcwd(),
            "environment": [sorted(os.environ), os.environ.get("PATH"), os.getenv("SET_BY")],
            "child": os.popen("echo $PATH $LEFT; umask").read(),
            "umask": umask,
            "handlers": [repr(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
            "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "timers": [signal.getitimer(n)[0] for n in (0, 1, 2)],
        }


    def on_signal(number, frame):
        pass


    @app.job
    def set_context():
        LOCAL.set("left over")
        HOME.set("left over")


    @app.job
    def go_elsewhere():
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir(os.getcwd())


    @app.job
    def change_environment():
        os.environ["LEFT"] = "over"
        os.environ["PATH"] = "/nowhere"
        del os.environ["SET_BY"], os.environ["STOKER_WORKER"]


    @app.job
    def replace_environment():
        os.environ.clear()
        os.environ = {}


    @app.job
    def change_umask():
        os.umask(0o777)


    @app.job
    def change_signals():
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, on_signal)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


    @app.job
    def set_alarms():
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.1)
        signal.setitimer(signal.ITIMER_PROF, 0.1)


    @app.job
    def fail_after_changes():
        change_umask()
        change_environment()
        raise ValueError("and leave")


    @app.job
    def wait(path):
        open(path, "w").close()
        time.sleep(60)
"""

CHANGES = [
    *("set_context", "go_elsewhere", "change_environment", "replace_environment", "change_umask"),
    *("change_signals", "set_alarms", "fail_after_changes"),
]


@pytest.fixture(scope="module")
def pool() -> Iterator[RunningPool]:
    with TemporaryDirectory(prefix="st-") as directory, RunningPool(Path(directory), app=APP) as pool:
        pool.broker.wait_workers(1)
        yield pool


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_undone_in_the_same_process(pool: RunningPool, change: str) -> None:
    before = pool.broker.wait_result(pool.broker.put("look"))
    op, message = pool.broker.wait_answer(pool.broker.put(change))
    assert (op, getattr(message, "outcome", "")) in [("ack", ""), ("nack", "error")]
    assert pool.broker.wait_result(pool.broker.put("look")) == before
    assert pool.broker.wait_result(pool.broker.put("sleep", 0.4)) == "slept"


def test_what_start_hooks_set_is_for_every_job(pool: RunningPool) -> None:
    for _ in range(2):
        found = pool.broker.wait_result(pool.broker.put("look"))
        assert found["context"] == ["at the start", "by the start hook"]
        assert (found["environment"][2], found["umask"]) == ("the start hook", 0o027)


def test_strike_is_dumped_and_raised_after_a_job_took_its_signal(pool: RunningPool) -> None:
    pool.broker.wait_answer(pool.broker.put("change_signals"))
    path = pool.directory / "waits"
    counter = pool.broker.put("wait", str(path))
    wait_until(path.exists, "the job runs")
    pool.broker.kill(counter, "timeout", grace_s=10)
    assert pool.broker.wait_answer(counter)[1].outcome == "timeout"
    assert "in wait" in pool.said()


def test_worker_obeys_term_after_hooks_and_jobs_took_it(pool: RunningPool) -> None:
    pool.broker.wait_answer(pool.broker.put("change_signals"))
    (worker,) = pool.broker.wait_workers(1)
    os.kill(worker.pid, signal.SIGTERM)
    assert pool.broker.wait_exit(worker.nonce).status == 0


# --- by itself, in a process that may be spoiled ------------------------------------------------------------


def ends_well(body: Callable[[], bool]) -> bool:
    return os.waitpid(forked(body), 0)[1] == 0


def test_directory_is_found_again_under_its_new_name(tmp_path: Path) -> None:
    def body() -> bool:
        os.mkdir(tmp_path / "old")
        os.chdir(tmp_path / "old")
        surroundings = Surroundings(None, lambda: None)
        os.chdir("/")
        os.rename(tmp_path / "old", tmp_path / "new")
        return surroundings.restore() and os.getcwd() == str(tmp_path / "new")

    assert ends_well(body)


def test_process_that_began_in_a_removed_directory_is_as_good_as_any(tmp_path: Path) -> None:
    def body() -> bool:
        os.mkdir(tmp_path / "gone")
        os.chdir(tmp_path / "gone")
        os.rmdir(tmp_path / "gone")
        surroundings = Surroundings(None, lambda: None)
        return surroundings.restore() and surroundings.restore()

    assert ends_well(body)


def test_what_cannot_be_put_back_is_said_again_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body() -> bool:
        surroundings = Surroundings(None, lambda: None)
        os.closerange(3, 1000)
        os.chdir("/proc")
        return not surroundings.restore() and not surroundings.restore()

    monkeypatch.chdir(tmp_path)
    assert ends_well(body)


def test_signals_are_put_in_anew_only_when_one_was_changed() -> None:
    calls: list[int] = []

    def body() -> bool:
        surroundings = Surroundings(None, lambda: calls.append(1))
        surroundings.restore()
        unchanged = calls == []
        process.disregard(signal.SIGUSR2)
        surroundings.restore()
        return unchanged and calls == [1] and signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL

    assert ends_well(body)


def test_each_job_gets_a_context_of_its_own() -> None:
    variable = contextvars.ContextVar("variable", default=0)

    def body() -> bool:
        variable.set(1)
        surroundings = Surroundings(None, lambda: None)
        surroundings.context().run(variable.set, 2)
        return surroundings.context().run(variable.get) == 1

    assert ends_well(body)
