"""The zygote and what its workers inherit: memory, and nothing else."""

import os
import random
import signal
import sys
from pathlib import Path

import pytest
from support.pools import RunningPool
from support.waiting import wait_until

from stoker.worker.process import OOM_SCORE_ADJ
from stoker.worker.zygote import load

pytestmark = pytest.mark.slow

PRIVATE_KIB_MAX = 6 * 1024

FINGERPRINTS = """
    import atexit, random, subprocess, tempfile

    HALF = tempfile.TemporaryDirectory(dir=".", prefix="made-at-import-")
    atexit.register(lambda: open("exit-handlers", "a").write(f"{os.getpid()}\\n"))
    sys.stdout.write("half a line at import")
    LOG = open("app.log", "w")


    @app.job
    def leave(how):
        sys.exit(how)


    @app.job
    def inherited():
        return {
            "descriptors": {name: os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                            if os.path.exists(f"/proc/self/fd/{name}")},
            "random": random.random(),
            "session": os.getsid(0),
            "ignored": [number for number in range(1, 32) if signal.getsignal(number) is signal.SIG_IGN],
            "ignored by programs": int(subprocess.run(
                ["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True).stdout.split()[1], 16),
            "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
            "marker": os.environ["STOKER_WORKER"],
            "socket": os.environ["STOKER_SOCKET"],
            "memory": int(open("/proc/self/oom_score_adj").read()),
        }


    @app.job
    def write_to_log(text):
        LOG.write(text)
        LOG.flush()


    @app.job
    def keep_descriptors(path):
        import subprocess
        open(path, "w").write(str(subprocess.Popen(["sleep", "600"], close_fds=False).pid))
"""


def test_app_is_found_by_module_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"an_app_{random.randrange(10**9)}"
    (tmp_path / f"{name}.py").write_text(
        "from stoker import App\napp = App()\nclass Nest:\n    other = App()\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert load(name) is load(f"{name}:app")
    assert load(f"{name}:Nest.other") is not load(name)
    with pytest.raises(TypeError, match="type, not a"):
        load(f"{name}:Nest")


def test_worker_inherits_nothing_but_memory(short_directory: Path) -> None:
    with RunningPool(short_directory, app=FINGERPRINTS) as pool:
        inherited = pool.broker.wait_result(pool.broker.put("inherited"))
        (worker,) = pool.broker.workers()
        kinds = sorted(target.split(":")[0] for target in inherited["descriptors"].values())
        assert kinds.count("socket") == 1
        assert "anon_inode" not in kinds
        assert not any("app.log" in target or "memfd" in target for target in kinds)
        assert inherited["descriptors"]["0"] == "/dev/null"
        assert inherited["session"] == worker.pid
        assert inherited["blocked"] == []
        # glibc keeps signals 32 and 33 to itself, and nobody can set them; a `make` above passes them on ignored.
        assert inherited["ignored by programs"] & ~(0b11 << 31) == 0
        assert inherited["memory"] >= OOM_SCORE_ADJ
        assert set(inherited["ignored"]) == {signal.SIGPIPE, signal.SIGXFSZ}
        assert (inherited["marker"], inherited["socket"]) == (worker.nonce, pool.broker.path)


def test_siblings_draw_different_random_numbers(short_directory: Path) -> None:
    with RunningPool(short_directory, app=FINGERPRINTS) as pool:
        drawn: set[float] = set()
        for _ in range(3):
            (worker,) = pool.broker.wait_workers(1)
            drawn.add(pool.broker.wait_result(pool.broker.put("inherited"))["random"])
            os.kill(worker.pid, signal.SIGTERM)
            pool.broker.wait_exit(worker.nonce)
        assert len(drawn) == 3


def test_what_the_app_writes_to_a_file_of_its_import_never_reaches_the_broker(short_directory: Path) -> None:
    with RunningPool(short_directory, app=FINGERPRINTS) as pool:
        pool.broker.wait_answer(pool.broker.put("write_to_log", "x" * 10_000))
        assert pool.broker.wait_result(pool.broker.put("add", 1, 1)) == 2
        assert (short_directory / "app.log").read_text() == ""


def test_no_end_of_a_worker_runs_the_exit_handlers_of_the_app(short_directory: Path) -> None:
    with RunningPool(short_directory, app=FINGERPRINTS) as pool:
        pool.broker.wait_workers(1)
        (made,) = short_directory.glob("made-at-import-*")
        pool.broker.wait_answer(pool.broker.put("leave", 0))
        for number in (signal.SIGTERM, signal.SIGKILL):
            (worker,) = pool.broker.wait_workers(1)
            os.kill(worker.pid, number)
            pool.broker.wait_exit(worker.nonce)
        pool.broker.wait_workers(1)
        assert made.exists()
        assert not (short_directory / "exit-handlers").exists()
        zygote = pool.zygote_pid()
        pool.terminate()
        assert (short_directory / "exit-handlers").read_text() == f"{zygote}\n"
        assert pool.said().count("half a line at import") == 1


def test_descriptors_do_not_grow_with_the_number_of_forks(short_directory: Path) -> None:
    def counts() -> list[int]:
        pids = (pool.pid, pool.zygote_pid(), pool.broker.wait_workers(1)[0].pid)
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]

    with RunningPool(short_directory, app=FINGERPRINTS) as pool:
        pool.broker.wait_result(pool.broker.put("add", 1, 1))
        before = counts()
        for _ in range(30):
            (worker,) = pool.broker.wait_workers(1)
            os.kill(worker.pid, signal.SIGTERM)
            pool.broker.wait_exit(worker.nonce)
        pool.broker.wait_result(pool.broker.put("add", 1, 1))
        assert counts() == before


def test_broker_sees_the_end_of_a_worker_whose_program_kept_every_descriptor(short_directory: Path) -> None:
    with RunningPool(short_directory, app=FINGERPRINTS) as pool:
        counter = pool.broker.put("keep_descriptors", str(short_directory / "pid"))
        pool.broker.wait_answer(counter)
        (worker,) = pool.broker.workers()
        os.kill(worker.pid, signal.SIGKILL)
        wait_until(lambda: worker not in pool.broker.workers(), "end of file", deadline_s=1)


def test_idle_worker_has_little_memory_of_its_own(short_directory: Path) -> None:
    with RunningPool(short_directory, workers=2) as pool:
        for worker in pool.broker.wait_workers(2):
            lines = Path(f"/proc/{worker.pid}/smaps_rollup").read_text().splitlines()
            private_kib = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
            assert private_kib < PRIVATE_KIB_MAX


# --- apps with threads ------------------------------------------------------------------------------

THREADS = """
    import logging, threading

    class SlowHandler(logging.Handler):
        def emit(self, record):
            time.sleep(0.05)

    LOG = logging.getLogger("app")
    LOG.addHandler(SlowHandler())
    LOG.propagate = False


    def chatter():
        while True:
            LOG.warning("still here")


    threading.Thread(target=chatter, daemon=True, name="chatter").start()


    @app.job
    def log_a_line():
        import fractions
        LOG.warning("a line")
"""


def test_threads_of_the_import_are_warned_of_and_hold_up_no_job(short_directory: Path) -> None:
    with RunningPool(short_directory, app=THREADS, workers=4) as pool:
        pool.wait_said("threads=chatter")
        for _ in range(5):
            counters = [pool.broker.put("log_a_line") for _ in range(8)]
            assert {pool.broker.wait_answer(counter)[0] for counter in counters} == {"ack"}
            for worker in pool.broker.workers():
                os.kill(worker.pid, signal.SIGKILL)
                pool.broker.wait_exit(worker.nonce)
            pool.broker.wait_workers(4)


IMPORTING = """
    import importlib, threading

    def bring_in():
        importlib.import_module("slow_module")
        open("imported", "w").close()

    threading.Thread(target=bring_in, daemon=True).start()
    while "slow_module" not in sys.modules:
        time.sleep(0.01)


    @app.job
    def use(path):
        open(path, "w").close()
        import slow_module
        return slow_module.VALUE
"""

SLOW_MODULE = """
import os, time
while not os.path.exists("go"):
    time.sleep(0.01)
VALUE = 7
"""


def test_worker_that_waits_for_a_lock_which_nobody_can_free_is_replaced(short_directory: Path) -> None:
    (short_directory / "slow_module.py").write_text(SLOW_MODULE)
    with RunningPool(short_directory, app=IMPORTING) as pool:
        counter = pool.broker.put("use", str(short_directory / "began"))
        wait_until((short_directory / "began").exists, "the job began")
        (short_directory / "go").touch()
        wait_until((short_directory / "imported").exists, "the import is over, in the zygote")
        pool.broker.kill(counter, "timeout", grace_s=30)
        assert pool.broker.wait_answer(counter)[1].outcome == "timeout"
        assert pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter)).status == 0
        assert pool.broker.wait_result(pool.broker.put("use", str(short_directory / "again"))) == 7


def test_stopped_reader_of_the_log_holds_up_neither_jobs_nor_respawn(short_directory: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    with RunningPool(short_directory, workers=2, stderr=writer) as pool:
        for worker in pool.broker.wait_workers(2):
            os.kill(worker.pid, signal.SIGKILL)
            pool.broker.wait_exit(worker.nonce)
        pool.broker.wait_workers(2)
        assert pool.broker.wait_result(pool.broker.put("add", 1, 1)) == 2
    os.close(reader)
    os.close(writer)
