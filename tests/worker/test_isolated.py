"""Isolated jobs in real workers: a process each, whose end is the attempt's and not the worker's."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.forking import forked
from support.pools import RunningPool, is_alive
from support.waiting import wait_until

from stoker.proto.work import Ack, Nack
from stoker.worker import process, startpage
from stoker.worker.attempt import Guard
from stoker.worker.errors import JobTimeout
from stoker.worker.hooks import Hooks
from stoker.worker.isolated import Isolation
from stoker.worker.link import Link
from stoker.worker.output import JobOutput, OutputRules
from stoker.worker.startpage import StartPage

pytestmark = pytest.mark.slow

APP = """
    import atexit, random, socket, stat, subprocess

    STATE = {"started_in": 0, "count": 0, "sockets": []}


    def mark(what):
        with open("marks", "a") as file:
            file.write(f"{os.getpid()} {what}\\n")


    @app.on_start
    def start():
        STATE["started_in"] = os.getpid()
        STATE["sockets"].append(socket.socketpair())
        mark("start")


    @app.on_stop
    def stop():
        mark("stop")


    @app.around_job
    def around(job):
        mark(f"around {job.kind}")
        yield


    @app.job(isolate=True)
    def look():
        STATE["count"] += 1
        return [os.getpid(), os.getppid(), os.getsid(0), STATE["started_in"], STATE["count"], random.random()]


    @app.job
    def look_in_worker():
        return [os.getpid(), STATE["started_in"], STATE["count"]]


    @app.job(isolate=True)
    def sockets():
        return [stat.S_ISSOCK(os.fstat(pair[0].fileno()).st_mode) for pair in STATE["sockets"]]


    @app.job
    def say_half_a_line():
        print("half a line", end="")


    @app.job(isolate=True)
    def whoami(big):
        job = current_job()
        print("said by", job.id, end="")
        return [job.id, job.kind, list(job.token), "x" * big]


    @app.job(isolate=True)
    def end_by(how):
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "null":
            ctypes.string_at(0)
        elif how == "exit":
            os._exit(0)
        elif how == "close":
            os.closerange(3, 1000)
            time.sleep(0.2)
        elif how == "raise":
            raise ValueError("its own")
        elif how == "exit politely":
            sys.exit(3)
        elif how == "permanent":
            raise Permanent("never")
        elif how == "fork":
            if os.fork() == 0:
                return "child"
            time.sleep(0.3)
            return "parent"
        elif how == "scribble":
            for fd in range(3, 64):
                try:
                    if stat.S_ISFIFO(os.fstat(fd).st_mode):
                        os.write(fd, b"\\xff" * 100)
                except OSError:
                    pass


    @app.job(isolate=True)
    def crash_with_child(path):
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        open(path, "w").write(str(child.pid))
        os.kill(os.getpid(), signal.SIGSEGV)


    @app.job(isolate=True)
    def leave_pipe_open():
        subprocess.Popen(["sleep", "5"], close_fds=False)
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        return "done"


    @app.job(isolate=True)
    def polite(path, seconds):
        child = subprocess.Popen(["sleep", "600"])
        open(path, "w").write(f"{os.getpid()} {child.pid}")
        os.rename(path, path + ".ready")
        try:
            time.sleep(seconds)
        except BaseException as error:
            open(path + ".caught", "w").write(type(error).__name__)
            raise
        child.kill()
        child.wait()
        return "slept"


    @app.job(isolate=True)
    def swallow(path):
        open(path, "w").write(f"{os.getpid()} 0")
        os.rename(path, path + ".ready")
        while True:
            try:
                time.sleep(60)
            except BaseException:
                pass


    @app.job(isolate=True)
    def leave_when_struck(path):
        open(path, "w").write(f"{os.getpid()} 0")
        os.rename(path, path + ".ready")
        try:
            time.sleep(60)
        except BaseException:
            os._exit(0)


    @app.job(isolate=True, memory_limit="64MiB")
    def take_without_end(how):
        if how == "python":
            taken = []
            while True:
                taken.append(bytearray(1 << 20))
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        while block := libc.malloc(1 << 20):
            ctypes.memset(block, 1, 1 << 20)
        os.abort()


    atexit.register(lambda: mark("atexit"))
"""


@pytest.fixture
def pool(short_directory: Path) -> Iterator[RunningPool]:
    with RunningPool(short_directory, app=APP) as pool:
        pool.broker.wait_workers(1)
        yield pool


def worker_pid(pool: RunningPool) -> int:
    (worker,) = pool.broker.wait_workers(1)
    return worker.pid


def begin(pool: RunningPool, kind: str, *args: object) -> tuple[int, Path, int, int]:
    """Hand out a job that says who it is; its counter, its file, and the pids of itself and its child."""
    path = pool.directory / kind
    counter = pool.broker.put(kind, str(path), *args)
    ready = Path(f"{path}.ready")
    wait_until(ready.exists, f"{kind} began")
    own, child = map(int, ready.read_text().split())
    return counter, path, own, child


def marks(pool: RunningPool, pid: int) -> list[str]:
    lines = [line.split(" ", 1) for line in (pool.directory / "marks").read_text().splitlines()]
    return [what for owner, what in lines if int(owner) == pid]


def failure(pool: RunningPool, kind: str, *args: object) -> Any:
    """The nack of a job."""
    op, message = pool.broker.wait_answer(pool.broker.put(kind, *args))
    assert op == "nack"
    return message


def test_each_job_has_a_process_of_its_own_that_ends_with_it(pool: RunningPool) -> None:
    worker = worker_pid(pool)
    first, second = (pool.broker.wait_result(pool.broker.put("look")) for _ in range(2))
    assert len({worker, first[0], second[0]}) == 3
    assert first[1:5] == [worker, first[0], first[0], 1]
    assert second[1:5] == [worker, second[0], second[0], 1]
    assert first[5] != second[5]
    assert not is_alive(first[0])
    assert pool.broker.wait_result(pool.broker.put("look_in_worker")) == [worker, worker, 0]


def test_hooks_are_called_in_it(pool: RunningPool) -> None:
    pid = pool.broker.wait_result(pool.broker.put("look"))[0]
    assert marks(pool, pid) == ["start", "around look", "stop"]
    assert marks(pool, worker_pid(pool)) == ["start"]


def test_sockets_of_the_worker_are_not_shared_with_it(pool: RunningPool) -> None:
    assert pool.broker.wait_result(pool.broker.put("sockets")) == [False, True]


def test_what_the_worker_had_yet_to_write_is_written_once(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with RunningPool(short_directory, app=APP) as pool:
        for kind in ("say_half_a_line", "look", "look"):
            pool.broker.wait_answer(pool.broker.put(kind))
        pool.terminate()
        assert pool.said().count("half a line") == 1


def test_it_knows_its_job_and_may_return_much(pool: RunningPool) -> None:
    counter = pool.broker.put("whoami", 60_000)
    assert pool.broker.wait_result(counter) == [
        f"job-{counter}",
        "whoami",
        [1, counter],
        "x" * 60_000,
    ]
    pool.terminate()
    assert pool.said().count("said by") == 1


@pytest.mark.parametrize(
    ("how", "number", "status"),
    [("kill", 9, None), ("null", 11, None), ("exit", None, 0), ("close", None, 1), ("scribble", None, 0)],
)
def test_its_death_is_the_attempts_crash_and_the_worker_lives_on(
    pool: RunningPool, how: str, number: int | None, status: int | None
) -> None:
    worker = worker_pid(pool)
    message = failure(pool, "end_by", how)
    assert (message.outcome, message.signal, message.status) == ("crash", number, status)
    assert message.memory_peak_bytes > 0
    assert f"(signal {number})" in message.reason or f"(exit status {status})" in message.reason
    assert pool.broker.wait_result(pool.broker.put("look"))[1] == worker
    assert pool.broker.all_of("exited") == []


@pytest.mark.parametrize(
    ("how", "outcome"), [("raise", "error"), ("exit politely", "error"), ("permanent", "permanent")]
)
def test_exceptions_mean_what_they_mean_anywhere(pool: RunningPool, how: str, outcome: str) -> None:
    message = failure(pool, "end_by", how)
    assert (message.outcome, message.signal, message.status) == (outcome, None, None)
    assert "in end_by" in message.report


def test_child_of_its_handler_that_comes_back_ends_at_once(pool: RunningPool) -> None:
    assert pool.broker.wait_result(pool.broker.put("end_by", "fork")) == "parent"
    assert pool.broker.wait_result(pool.broker.put("add", 1, 1)) == 2
    assert [len(answers) for answers in pool.broker.answers.values()] == [1, 1]


def test_answer_does_not_wait_for_what_the_job_left_running(pool: RunningPool) -> None:
    counter = pool.broker.put("leave_pipe_open")
    assert pool.broker.wait_answer(counter, deadline_s=4)[0] == "ack"


def test_crash_leaves_nothing_it_started(pool: RunningPool) -> None:
    path = pool.directory / "child"
    assert failure(pool, "crash_with_child", str(path)).signal == 11
    assert not is_alive(int(path.read_text()))


# --- strikes and deaths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reason", "name"), [("timeout", "JobTimeout"), ("cancelled", "JobCancelled")])
def test_strike_is_raised_in_its_handler_and_all_it_started_is_killed(
    pool: RunningPool, reason: str, name: str
) -> None:
    worker = worker_pid(pool)
    counter, path, own, child = begin(pool, "polite", 60)
    pool.broker.kill(counter, reason, grace_s=10)
    assert pool.broker.wait_answer(counter)[1].outcome == reason
    assert Path(f"{path}.caught").read_text() == name
    assert (is_alive(own), is_alive(child)) == (False, False)
    assert "in polite" in pool.said()
    assert worker_pid(pool) == worker


def test_one_that_leaves_when_it_is_struck_is_still_over_its_time(pool: RunningPool) -> None:
    counter, *_ = begin(pool, "leave_when_struck")
    pool.broker.kill(counter, "timeout", grace_s=10)
    assert pool.broker.wait_answer(counter)[1].outcome == "timeout"


def test_one_that_swallows_the_strike_is_killed_with_its_worker(pool: RunningPool) -> None:
    counter, _, own, _ = begin(pool, "swallow")
    pool.broker.kill(counter, "timeout", grace_s=0.3)
    exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter))
    assert (exited.tokens, exited.kill_token, exited.swept) == ([[1, counter]], [1, counter], True)
    assert not is_alive(own)


def test_death_of_the_worker_ends_it(pool: RunningPool) -> None:
    counter, _, own, child = begin(pool, "polite", 60)
    worker = pool.broker.wait_holder(counter)
    os.kill(worker.pid, signal.SIGKILL)
    exited = pool.broker.wait_exit(worker.nonce)
    assert (exited.tokens, exited.swept) == ([[1, counter]], True)
    assert (is_alive(own), is_alive(child)) == (False, False)


def test_death_of_the_worker_ends_it_at_once_whoever_else_is_away(pool: RunningPool) -> None:
    counter, _, own, _ = begin(pool, "polite", 60)
    os.kill(pool.pid, signal.SIGSTOP)
    os.kill(pool.broker.wait_holder(counter).pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(own), "its process has ended")
    os.kill(pool.pid, signal.SIGCONT)


def test_drain_waits_for_it(pool: RunningPool) -> None:
    zygote = pool.zygote_pid()
    counter, *_ = begin(pool, "polite", 0.5)
    assert pool.terminate() == 0
    assert pool.broker.wait_answer(counter)[0] == "ack"
    # The exit handlers of the import are run by the process that imported, once.
    assert marks(pool, zygote) == ["atexit"]
    assert (pool.directory / "marks").read_text().count("atexit") == 1


def test_term_to_every_process_at_once_is_one_drain(pool: RunningPool) -> None:
    counter, _, own, _ = begin(pool, "polite", 0.5)
    for pid in (own, worker_pid(pool), pool.zygote_pid()):
        os.kill(pid, signal.SIGTERM)
    assert pool.terminate() == 0
    assert pool.broker.wait_answer(counter)[0] == "ack"


def test_it_outlasts_a_restart_of_the_broker(pool: RunningPool) -> None:
    counter, *_ = begin(pool, "polite", 1)
    pool.broker.stop()
    pool.broker.start()
    wait_until(lambda: pool.broker.hello_holding(counter) is not None, "a hello that says what runs")
    assert pool.broker.wait_answer(counter)[0] == "ack"


def test_strike_that_came_before_the_process_was_known_is_passed_on() -> None:
    page = StartPage(startpage.create())
    page.kill(0, (1, 1), "timeout", 0)

    def struck(number: int, frame: object) -> None:
        raise JobTimeout("struck")

    def body() -> bool:
        signal.signal(process.STRIKE_SIGNAL, struck)
        link = Link("/nowhere", unsaid)
        output = JobOutput(OutputRules())
        isolation = Isolation(Hooks(), link, page, Guard(), "0123456789", output)
        return isinstance(isolation.run((1, 1), outlast), Nack)

    assert os.waitpid(forked(body), 0)[1] == 0


def unsaid(held: Any) -> Any:
    """It never connects, so it never greets."""


def outlast() -> Ack:
    signal.sigtimedwait([signal.SIGUSR2], 5)
    return Ack((1, 1))


# --- memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "number"), [("python", None), ("in c", 6)])
def test_memory_limit_holds_in_it(pool: RunningPool, how: str, number: int | None) -> None:
    worker = worker_pid(pool)
    message = failure(pool, "take_without_end", how)
    assert (message.outcome, message.signal) == ("memory", number)
    assert pool.broker.wait_result(pool.broker.put("look"))[1] == worker
