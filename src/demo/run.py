"""`stoker demo`: digest every file of the standard library through two kills, and check it all.

    enqueue three fifths ── half is done ── SIGKILL worker, SIGKILL broker ── enqueue the rest ── check

The rest is enqueued while there is no broker: the client waits for the next one and repeats what
was not answered, under the same ids. A second delivery is allowed if it has a reason on record, a
lost, dead or wrong job never is. Data goes to stdout (duplicates, then the closing line), talk to
stderr.
"""

import os
import signal
import sys
import sysconfig
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from types import FrameType

from .. import JobHandle, JobNotFoundError, JobSpec, StokerError
from .progress import Progress
from .stage import Stage, StageError
from .tasks import PLANNED_FAILURES, digest, digest_after_failures, digest_of
from .verdict import Verdict

WORKERS = 4
FINISH_S = 120.0
POLL_S = 0.002
"""Half of a few thousand small files passes in a fraction of a second."""


def standard_library() -> list[str]:
    """Every .py file of the running Python's standard library, without installed packages."""
    found: list[str] = []
    for directory, below, names in os.walk(sysconfig.get_path("stdlib")):
        below[:] = sorted(name for name in below if name not in ("site-packages", "dist-packages"))
        paths = (os.path.join(directory, name) for name in sorted(names) if name.endswith(".py"))
        found += [path for path in paths if os.path.isfile(path)]
    return found


def main(workers: int = WORKERS) -> int:
    """Run it; the exit code. The closing line is printed whenever there is something to count."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _leave)
    started = time.monotonic()
    paths = standard_library()
    verdict = Verdict(jobs=len(paths), slots=workers, planned_failures=PLANNED_FAILURES)
    stage = Stage()
    try:
        stage.set_up(workers)
        _perform(stage, paths, verdict)
    except StageError as error:
        verdict.problems.append(str(error))
    finally:
        stage.strike()
    holds = verdict.judge()
    for problem in verdict.problems:
        print(problem, file=sys.stderr)
    for duplicate in verdict.duplicates:
        print(duplicate)
    print(verdict.line(time.monotonic() - started), flush=True)
    return 0 if holds else 1


def _leave(number: int, frame: FrameType | None) -> None:
    """A signal to end becomes an exception, so that the stage is struck."""
    raise SystemExit(128 + number)


def _perform(stage: Stage, paths: Sequence[str], verdict: Verdict) -> None:
    try:
        _play(stage, paths, verdict)
    except StokerError as error:
        raise StageError(f"{error}\n{stage.last_log()}") from error


def _play(stage: Stage, paths: Sequence[str], verdict: Verdict) -> None:
    specs = _specs(paths, os.path.join(stage.directory, "tally"))
    first = len(specs) * 3 // 5
    with closing(Progress(len(paths))) as progress:
        progress.say(f"{len(paths)} files, {verdict.slots} workers, broker in {stage.directory}")
        stage.wait_ready(verdict.slots)
        handles = stage.client.enqueue_many(specs[:first])
        _watch(stage, progress, len(specs) // 2)
        worker, broker = stage.kill_worker_and_broker()
        verdict.workers_killed, verdict.brokers_killed = 1, 1
        progress.say(f"killed worker {worker} and broker {broker}")
        handles += stage.client.enqueue_many(specs[first:])
        _watch(stage, progress, len(specs))
    _check(stage, zip(paths, handles, strict=True), verdict)


def _specs(paths: Sequence[str], tally: str) -> list[JobSpec]:
    """One job a file. The first is the one that fails twice, so that it is over before the kills."""
    return [
        JobSpec(digest_after_failures.kind, [paths[0], tally], queue="demo", backoff_s=0.1),
        *(JobSpec(digest.kind, [path], queue="demo") for path in paths[1:]),
    ]


def _watch(stage: Stage, progress: Progress, target: int) -> None:
    """Return when `target` jobs have ended, or nothing has moved for too long; the check will tell."""
    end = time.monotonic() + FINISH_S
    while (ended := _ended(stage)) < target and time.monotonic() < end:
        progress.show(ended)
        time.sleep(POLL_S)
    progress.show(ended)


def _ended(stage: Stage) -> int:
    queue = stage.client.status().get("queues", {}).get("demo", {})
    return sum(int(queue.get(state, 0)) for state in ("done", "dead", "cancelled"))


def _check(stage: Stage, jobs: Iterable[tuple[str, JobHandle]], verdict: Verdict) -> None:
    for path, handle in jobs:
        try:
            outcome = handle.wait(timeout_s=0)
        except JobNotFoundError as error:
            verdict.count_missing(handle.id, str(error))
            continue
        if not outcome.is_finished:
            verdict.count_missing(handle.id, f"still {outcome.state}")
            continue
        is_right = outcome.state == "done" and tuple(outcome.result) == digest_of(path)
        verdict.count_ended(handle.id, outcome.state, outcome.reason, is_right=is_right)
        if outcome.attempt > 1:
            verdict.count_attempts(stage.client.show(handle.id))
