"""One worker of a real pool: what it makes of jobs, signals, and a broker that comes and goes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pools import RunningPool, is_alive
from support.waiting import wait_until

from stoker.worker import process

pytestmark = pytest.mark.slow

APP = """
    import itertools
    import threading


    @app.job
    def leave(how):
        if how == "fork":
            if os.fork() == 0:
                return "the child came back"
            return "the parent"
        raise {
            "exit 0": SystemExit(0), "exit x": SystemExit("x"), "interrupt": KeyboardInterrupt(),
            "base": BaseException("odd"), "generator": GeneratorExit(), "memory": MemoryError(),
        }[how]


    @app.job
    def hard_exit():
        os._exit(0)


    @app.job
    def polite(path, seconds):
        open(path, "w").close()
        try:
            time.sleep(seconds)
            open(path + ".ended", "w").close()
        except BaseException as error:
            open(path + ".caught", "w").write(type(error).__name__)
            raise


    @app.job
    def swallow(path):
        open(path, "w").close()
        while True:
            try:
                time.sleep(1)
            except BaseException:
                pass


    @app.job
    def compute(path):
        open(path, "w").close()
        sum(itertools.repeat(1, 10**11))


    @app.job
    def whoami():
        job = current_job()
        return [job.id, job.attempt, list(job.token), job.kind, job.queue, dict(job.headers), job.remaining_s()]


    @app.job
    def steal_term():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


    @app.job
    def go_deaf():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))


    @app.job
    def nothing():
        pass


    @app.job
    def progress(path, calls):
        open(path, "w").close()
        for number in range(calls):
            current_job().progress(number, calls, "counting")
        return "said"


    @app.job
    def beat(path, seconds, silent_s):
        open(path, "w").close()
        end = time.monotonic() + seconds
        current_job().heartbeat(within_s=1)
        while time.monotonic() < end:
            current_job().heartbeat()
            time.sleep(0.05)
        time.sleep(silent_s)
        return "beaten"


    @app.job
    def swallow_silently(path):
        current_job().heartbeat(within_s=1)
        open(path, "w").close()
        while True:
            try:
                time.sleep(1)
            except BaseException:
                current_job().heartbeat(within_s=0)


    @app.job
    def ask(path):
        job = current_job()
        open(path, "w").close()
        while not job.cancelled:
            try:
                time.sleep(0.01)
            except BaseException:
                pass
        return "asked"


    @app.job
    def thread(path):
        seen, job = [], current_job()

        def watch():
            while not job.cancelled:
                time.sleep(0.01)
            seen.append(1)

        watcher = threading.Thread(target=watch)
        watcher.start()
        open(path, "w").close()
        try:
            time.sleep(60)
        finally:
            watcher.join()
            open(path + ".seen", "w").close()
"""


@pytest.fixture
def pool(short_directory: Path) -> Iterator[RunningPool]:
    with RunningPool(short_directory, app=APP) as pool:
        pool.broker.wait_workers(1)
        yield pool


def begin(pool: RunningPool, kind: str, *args: object) -> tuple[int, Path]:
    """Hand out a job that touches a file as it begins; its token's counter and the file."""
    path = pool.directory / f"began-{kind}"
    counter = pool.broker.put(kind, str(path), *args)
    wait_until(path.exists, f"{kind} began")
    return counter, path


def stop(pid: int) -> None:
    """SIGSTOP, and wait until it has had its effect."""

    def is_stopped() -> bool:
        found = process.stat(pid)
        return found is not None and found.is_stopped

    os.kill(pid, signal.SIGSTOP)
    wait_until(is_stopped, "it is stopped")


def test_handler_gets_its_arguments_and_its_result_is_acked(pool: RunningPool) -> None:
    assert pool.broker.wait_result(pool.broker.put("add", 2, b=3)) == 5
    assert pool.broker.wait_result(pool.broker.put("add", raw=b"[20, 30]")) == 50


def test_handler_knows_its_job(pool: RunningPool) -> None:
    *job, remaining_s = pool.broker.wait_result(pool.broker.put("whoami", time_limit_s=5))
    assert job == ["job-1", 1, [1, 1], "whoami", "default", {}]
    assert 0 < remaining_s <= 5


@pytest.mark.parametrize("how", ["exit 0", "exit x", "interrupt", "base", "generator", "memory"])
def test_worker_lives_on_after_any_exception(pool: RunningPool, how: str) -> None:
    pid = pool.broker.wait_result(pool.broker.put("pid"))
    op, message = pool.broker.wait_answer(pool.broker.put("leave", how))
    assert (op, message.outcome) == ("nack", "memory" if how == "memory" else "error")
    assert pool.broker.wait_result(pool.broker.put("pid")) == pid


def test_unknown_kind_and_bad_payload_fail_the_attempt_and_nothing_else(pool: RunningPool) -> None:
    outcomes = [
        pool.broker.wait_answer(pool.broker.put("no.such.kind"))[1].outcome,
        pool.broker.wait_answer(pool.broker.put("add", raw=b"\xc1"))[1].outcome,
    ]
    assert outcomes == ["error", "permanent"]
    assert pool.broker.wait_result(pool.broker.put("add", 1, 1)) == 2


def test_exit_0_under_a_job_is_a_death_with_its_token(pool: RunningPool) -> None:
    counter = pool.broker.put("hard_exit")
    exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter))
    assert (exited.tokens, exited.status, exited.signal, exited.shutdown) == ([[1, counter]], 0, None, False)
    assert counter not in pool.broker.answers


def test_death_between_jobs_has_no_token(pool: RunningPool) -> None:
    pool.broker.wait_result(pool.broker.put("add", 1, 1))
    (worker,) = pool.broker.workers()
    pool.broker.wait_at_rest(worker)
    os.kill(worker.pid, signal.SIGKILL)
    exited = pool.broker.wait_exit(worker.nonce)
    assert (exited.tokens, exited.signal) == ([], 9)
    assert exited.memory_peak_bytes > 0


@pytest.mark.parametrize(("reason", "name"), [("timeout", "JobTimeout"), ("cancelled", "JobCancelled")])
def test_struck_handler_can_clean_up_and_its_worker_lives_on(
    pool: RunningPool, reason: str, name: str
) -> None:
    pid = pool.broker.wait_result(pool.broker.put("pid"))
    counter, path = begin(pool, "polite", 60)
    pool.broker.kill(counter, reason, grace_s=10)
    _, message = pool.broker.wait_answer(counter)
    assert message.outcome == reason
    assert "time.sleep(seconds)" in message.report
    assert Path(f"{path}.caught").read_text() == name
    assert pool.broker.wait_result(pool.broker.put("pid")) == pid


def test_strike_leaves_a_stack_dump_in_the_log(pool: RunningPool) -> None:
    counter, _ = begin(pool, "polite", 60)
    pool.broker.kill(counter, "timeout", grace_s=10)
    pool.broker.wait_answer(counter)
    assert "in polite" in pool.said()


def test_handler_that_swallows_everything_is_killed_after_the_grace(pool: RunningPool) -> None:
    counter, _ = begin(pool, "swallow")
    pool.broker.kill(counter, "timeout", grace_s=0.3)
    exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter))
    assert (exited.tokens, exited.kill_token, exited.signal) == ([[1, counter]], [1, counter], 9)
    assert counter not in pool.broker.answers


def test_handler_in_a_call_into_c_is_killed_after_the_grace(pool: RunningPool) -> None:
    counter, _ = begin(pool, "compute")
    pool.broker.kill(counter, "timeout", grace_s=0.3)
    assert pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter)).kill_token == [1, counter]


def test_kill_for_an_attempt_that_is_over_harms_no_other(pool: RunningPool) -> None:
    earlier = pool.broker.put("add", 1, 1)
    pool.broker.wait_answer(earlier)
    counter, _ = begin(pool, "polite", 0.5)
    pool.broker.kill(earlier, "timeout", grace_s=0)
    assert pool.broker.wait_answer(counter)[0] == "ack"
    assert pool.broker.all_of("exited") == []


def test_job_that_shall_end_before_it_begins_never_runs(pool: RunningPool) -> None:
    (worker,) = pool.broker.workers()
    stop(worker.pid)
    counter = pool.broker.put("touch_and_sleep", str(pool.directory / "ran"), 0)
    pool.broker.kill(counter, "cancelled", grace_s=60)
    pool.broker.barrier()
    os.kill(worker.pid, signal.SIGCONT)
    assert pool.broker.wait_answer(counter)[1].outcome == "cancelled"
    assert not (pool.directory / "ran").exists()


def test_worker_that_was_stopped_before_it_began_is_killed_and_charged_to_nobody(pool: RunningPool) -> None:
    (worker,) = pool.broker.workers()
    stop(worker.pid)
    counter = pool.broker.put("add", 1, 1)
    pool.broker.kill(counter, "lost", grace_s=0)
    exited = pool.broker.wait_exit(worker.nonce)
    assert (exited.tokens, exited.signal) == ([], 9)


def test_child_of_a_handler_that_comes_back_ends_at_once(pool: RunningPool) -> None:
    assert pool.broker.wait_result(pool.broker.put("leave", "fork")) == "the parent"
    assert pool.broker.wait_result(pool.broker.put("add", 1, 1)) == 2
    assert [len(answers) for answers in pool.broker.answers.values()] == [1, 1]


def test_term_finishes_the_job_and_the_worker_is_replaced(pool: RunningPool) -> None:
    counter, _ = begin(pool, "polite", 0.5)
    worker = pool.broker.wait_holder(counter)
    os.kill(worker.pid, signal.SIGTERM)
    assert pool.broker.wait_answer(counter)[0] == "ack"
    exited = pool.broker.wait_exit(worker.nonce)
    assert (exited.tokens, exited.status) == ([], 0)
    assert pool.broker.wait_result(pool.broker.put("pid")) != worker.pid


def test_term_wakes_an_idle_worker(pool: RunningPool) -> None:
    (worker,) = pool.broker.workers()
    os.kill(worker.pid, signal.SIGTERM)
    assert pool.broker.wait_exit(worker.nonce, deadline_s=2).status == 0


def test_int_is_the_supervisors_business(pool: RunningPool) -> None:
    counter, _ = begin(pool, "polite", 0.5)
    os.kill(pool.broker.wait_holder(counter).pid, signal.SIGINT)
    assert pool.broker.wait_answer(counter)[0] == "ack"


def test_handler_that_takes_over_term_is_undone(pool: RunningPool) -> None:
    pool.broker.wait_answer(pool.broker.put("steal_term"))
    for _ in range(20):
        pool.broker.wait_answer(pool.broker.put("nothing"))
    (worker,) = pool.broker.workers()
    os.kill(worker.pid, signal.SIGTERM)
    assert pool.broker.wait_exit(worker.nonce).status == 0


def test_handler_that_blocks_every_signal_leaves_no_deaf_worker(pool: RunningPool) -> None:
    pool.broker.wait_answer(pool.broker.put("go_deaf"))
    (worker,) = pool.broker.workers()
    os.kill(worker.pid, signal.SIGTERM)
    assert pool.broker.wait_exit(worker.nonce, deadline_s=5).status == 0


def test_random_terms_lose_no_job(pool: RunningPool) -> None:
    counters: list[int] = []
    for _ in range(40):
        counters += [pool.broker.put("nothing") for _ in range(5)]
        for worker in pool.broker.workers():
            os.kill(worker.pid, signal.SIGTERM)
        pool.broker.wait_workers(1)
    for counter in counters:
        pool.broker.wait_ended(counter)


# --- what a running handler says and hears ------------------------------------------------------------


def test_progress_reaches_the_broker_and_more_of_it_than_it_reads_is_dropped(pool: RunningPool) -> None:
    counter, _ = begin(pool, "progress", 10_000)
    assert pool.broker.wait_answer(counter)[0] == "ack"
    said = pool.broker.all_of("progress")
    assert 0 < len(said) < 100
    assert (said[0].token, said[0].done, said[0].total, said[0].text) == ([1, counter], 0, 10_000, "counting")


def test_handler_that_beats_in_time_is_left_alone_and_owes_nothing_afterwards(pool: RunningPool) -> None:
    pool.broker.withhold = lambda op: op == "ack"
    counter, _ = begin(pool, "beat", 2.5, 0)
    assert pool.broker.wait_answer(counter)[0] == "ack"
    # Unconfirmed, so it is still on the start page, for longer than it had named.
    beats = len(pool.broker.all_of("heartbeat"))
    wait_until(lambda: len(pool.broker.all_of("heartbeat")) > beats + 50, "three seconds have passed")
    assert pool.broker.all_of("exited") == []


def test_handler_that_falls_silent_is_ended_as_over_its_time(pool: RunningPool) -> None:
    counter, _ = begin(pool, "beat", 0, 60)
    op, message = pool.broker.wait_answer(counter)
    assert (op, message.outcome, message.reason) == (
        "nack",
        "timeout",
        "it did not beat in the time it had named",
    )
    assert pool.broker.wait_result(pool.broker.put("add", 1, 1)) == 2


def test_handler_that_falls_silent_and_swallows_the_strike_is_killed_for_its_token(
    pool: RunningPool,
) -> None:
    counter, _ = begin(pool, "swallow_silently")
    exited = pool.broker.wait_exit(pool.broker.wait_holder_nonce(counter), deadline_s=20)
    assert (exited.tokens, exited.kill_token, exited.signal) == ([[1, counter]], [1, counter], 9)


def test_handler_that_catches_the_strike_can_ask_whether_it_is_cancelled(pool: RunningPool) -> None:
    counter, _ = begin(pool, "ask")
    pool.broker.kill(counter, "cancelled", grace_s=10)
    _, message = pool.broker.wait_answer(counter)
    assert (message.outcome, message.report) == ("cancelled", "the handler went on all the same")


def test_threads_of_a_handler_see_that_it_is_cancelled(pool: RunningPool) -> None:
    counter, path = begin(pool, "thread")
    pool.broker.kill(counter, "timeout", grace_s=10)
    assert pool.broker.wait_answer(counter)[1].outcome == "timeout"
    assert Path(f"{path}.seen").exists()


# --- a broker that comes and goes -----------------------------------------------------------------


def test_job_runs_on_through_a_restart_of_the_broker_and_is_acked_once(pool: RunningPool) -> None:
    counter, _ = begin(pool, "polite", 3.0)
    pid = pool.broker.wait_holder(counter).pid
    pool.broker.stop()
    pool.broker.start()
    wait_until(lambda: pool.broker.hello_holding(counter) is not None, "a hello that says what runs")
    hello = pool.broker.hello_holding(counter)
    assert hello is not None
    assert hello.held == [[1, counter, "running"]]
    assert pool.broker.wait_answer(counter)[0] == "ack"
    assert pool.broker.wait_result(pool.broker.put("pid")) == pid
    assert len(pool.broker.answers[counter]) == 1


def test_unconfirmed_ack_is_kept_and_repeated_to_the_next_broker(pool: RunningPool) -> None:
    pool.broker.withhold = lambda op: op == "ack"
    counter = pool.broker.put("add", 1, 1)
    pool.broker.wait_answer(counter)
    pool.broker.stop()
    pool.broker.withhold = lambda op: False
    pool.broker.start()
    wait_until(lambda: len(pool.broker.answers[counter]) == 2, "the ack came again")
    hello = pool.broker.hello_holding(counter)
    assert hello is not None
    assert hello.held == [[1, counter, "finished"]]
    first, second = pool.broker.answers[counter]
    assert first == second


def test_job_that_ends_while_the_broker_is_away_is_acked_to_the_next(pool: RunningPool) -> None:
    counter, path = begin(pool, "polite", 0.2)
    pool.broker.stop()
    wait_until(Path(f"{path}.ended").exists, "the handler has ended")
    pool.broker.start()
    assert pool.broker.wait_answer(counter)[0] == "ack"


def test_worker_told_to_end_waits_until_its_ack_has_arrived(pool: RunningPool) -> None:
    pool.broker.withhold = lambda op: op == "ack"
    counter = pool.broker.put("add", 1, 1)
    pool.broker.wait_answer(counter)
    (worker,) = pool.broker.workers()
    pool.broker.stop()
    os.kill(worker.pid, signal.SIGTERM)
    pool.broker.withhold = lambda op: False
    pool.broker.start()
    wait_until(lambda: len(pool.broker.answers[counter]) == 2, "the ack came again")
    wait_until(lambda: not is_alive(worker.pid), "the worker ended")
