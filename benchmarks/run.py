"""What stoker is held to, figure by figure, beside a stand-in on the same machine: `make bench`.

4 workers, handlers that do nothing, 100 bytes of payload, every acknowledgement synced. In each round
stoker and the stand-in (a broker without features) are measured in turn, with yardsticks of the machine
between, so that a machine that changes its speed changes all of them. README.md says how to read it.
Ends with 1 if a figure misses its floor.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import yardsticks
from processes import limited, nothing_left, wait_for
from subjects import WORKERS, Stoker, Subject, standin_up, stoker_up

from stoker.proto import limits

# Short, and in many rounds: the two that are compared shall find the machine at the same speed.
SEQUENTIAL_S = 1.0
PIPELINED_JOBS = 10_000
LATENCY_PER_S = 200
LATENCY_S = 3.0
WORKED_JOBS = 2_000
PROGRAMS = 1_000
STREAM_BYTES = 1_000_000_000

ROUNDS = 7

SETTLED_S = limits.FRESH_MS / 1000 + 1
"""Ids made earlier than that after the start of a broker are looked up on disk; no lasting rate."""

MEASURE_S_MAX = 120
"""Many times what any of the measurements takes on the slowest machine that was tried."""

Values = dict[str, list[float]]
"""Figure to its value in each round."""


class Figure(NamedTuple):
    """One figure and its floors: `floor` absolute, `share` in percent of the stand-in's."""

    name: str
    unit: str
    is_rate: bool
    floor: float | None = None
    share: float | None = None

    def holds(self, value: float, floor: float) -> bool:
        return value >= floor if self.is_rate else value <= floor


FIGURES = {
    "sequential": Figure("durable enqueues of one client, one by one", "/s", True, 2_000, 71),
    "pipelined": Figure("jobs end to end of one pipelining client", "/s", True, 8_000, 57),
    "p50": Figure(f"enqueue to start at {LATENCY_PER_S} jobs/s, p50", " ms", False),
    "p99": Figure(f"enqueue to start at {LATENCY_PER_S} jobs/s, p99", " ms", False, 2),
    "programs": Figure("programs as jobs, a loop on one core beside", "/s", True, None, 70),
    "streams": Figure("output of a program, a pipe into cat beside", " MB/s", True, None, 50),
    "memory": Figure("private memory of an idle worker", " MB", False, 6),
}
"""The shares are those of 2,800/s and 14,000/s, which a stand-in reached where the floors were set."""

YARDSTICKS = {
    "commits": Figure("synced SQLite commits of one row", "/s", True),
    "round_trips": Figure("round trips over a Unix socket", "/s", True),
    "loop": Figure("a million turns of an empty loop", " ms", False),
}


# --- measurements -----------------------------------------------------------------------------------


def sequential(subject: Subject) -> dict[str, float]:
    """Durable enqueues a second of one client that waits for each."""
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < SEQUENTIAL_S:
        subject.enqueue()
        count += 1
    return {"sequential": count / (time.perf_counter() - start)}


def pipelined(subject: Subject) -> dict[str, float]:
    """Jobs a second from the first enqueue of one client to the last completion."""
    start = time.perf_counter()
    subject.enqueue_many(PIPELINED_JOBS)
    settle(subject)
    return {"pipelined": PIPELINED_JOBS / (time.perf_counter() - start)}


def latency(subject: Subject) -> dict[str, float]:
    """Milliseconds from just before an enqueue to the start of the job, at a steady rate."""
    sent: list[tuple[int, object]] = []
    start = time.monotonic()
    for index in range(int(LATENCY_PER_S * LATENCY_S)):
        time.sleep(max(0.0, start + index / LATENCY_PER_S - time.monotonic()))
        at_ns = time.monotonic_ns()
        sent.append((at_ns, subject.enqueue_timed()))
    settle(subject)
    waits = [(subject.started_ns(key) - at_ns) / 1e6 for at_ns, key in sent]
    return {"p50": quantile(waits, 0.50), "p99": quantile(waits, 0.99)}


def programs(subject: Subject) -> dict[str, float]:
    """Programs a second, from the first enqueue to the end of the last. The stand-in is a loop of `subprocess.run` on one core."""
    start = time.perf_counter()
    subject.run_programs(PROGRAMS)
    settle(subject)
    return {"programs": PROGRAMS / (time.perf_counter() - start)}


def streams(subject: Subject) -> dict[str, float]:
    """Megabytes a second of a program into a function that counts them. Of the stand-in, into `cat > /dev/null`."""
    subject.stream(1)
    start = time.perf_counter()
    subject.stream(STREAM_BYTES)
    return {"streams": STREAM_BYTES / 1e6 / (time.perf_counter() - start)}


def memory(subject: Subject) -> dict[str, float]:
    """Megabytes that an idle worker shares with nobody. Those of the stand-in's measure nothing."""
    if not isinstance(subject, Stoker):
        return {}
    # One that has never worked has less.
    subject.enqueue_many(WORKED_JOBS)
    settle(subject)
    return {"memory": statistics.fmean(private_mb(pid) for pid in subject.workers())}


MEASUREMENTS: dict[str, Callable[[Subject], dict[str, float]]] = {
    "sequential": sequential,
    "pipelined": pipelined,
    "latency": latency,
    "programs": programs,
    "streams": streams,
    "memory": memory,
}


def settle(subject: Subject) -> None:
    """Wait until everything is done."""
    wait_for(lambda: subject.unfinished() == 0)


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def private_mb(pid: int) -> float:
    """Private memory of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = (
        int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))
    )
    return sum(kilobytes) * 1024 / 1e6


# --- rounds -----------------------------------------------------------------------------------------


def measure(chosen: Sequence[str], rounds: int) -> tuple[Values, Values, Values]:
    """What stoker, the stand-in and the machine did in each round."""
    of_stoker, of_standin, of_machine = Values(), Values(), Values()
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="stoker-bench-"))
        stoker = stack.enter_context(stoker_up(directory))
        turns: list[tuple[Subject, Values]] = [(stoker, of_stoker)]
        if set(chosen) != {"memory"}:
            turns.append((stack.enter_context(standin_up(directory)), of_standin))
        time.sleep(SETTLED_S)
        for _ in range(rounds):
            for name in chosen:
                for subject, values in turns:
                    with limited(MEASURE_S_MAX, name):
                        _note(values, MEASUREMENTS[name](subject))
                        settle(subject)
            _note(of_machine, look_at_machine(directory))
            # Whoever comes second may find a machine that the first has warmed up, or tired.
            turns.reverse()
    return of_stoker, of_standin, of_machine


def look_at_machine(directory: str) -> dict[str, float]:
    with limited(MEASURE_S_MAX, "yardsticks"):
        return {
            "commits": yardsticks.commits_per_s(directory),
            "round_trips": yardsticks.round_trips_per_s(),
            "loop": yardsticks.loop_ms(),
        }


def _note(values: Values, found: dict[str, float]) -> None:
    for key, value in found.items():
        values.setdefault(key, []).append(value)


# --- the report -------------------------------------------------------------------------------------


def report(of_stoker: Values, of_standin: Values) -> bool:
    """Print a line a figure; whether all floors are met."""
    good = True
    print(f"\n{'':<44}{'stoker':<32}{'stand-in':<32}{'ratio':<8}floors")
    for key, figure in FIGURES.items():
        if key in of_stoker:
            share = _share(of_stoker[key], of_standin.get(key))
            verdict, is_met = _verdict(figure, statistics.median(of_stoker[key]), share)
            good = good and is_met
            beside = _spread(of_standin[key], figure.unit) if key in of_standin else "-"
            ratio = "-" if share is None else f"{share:.0f} %"
            print(
                f"{figure.name:<44}{_spread(of_stoker[key], figure.unit):<32}{beside:<32}{ratio:<8}{verdict}"
            )
    return good


def _share(ours: Sequence[float], theirs: Sequence[float] | None) -> float | None:
    """Percent, round by round and then the median: the two of a round were measured side by side."""
    if theirs is None:
        return None
    return statistics.median(100 * our / their for our, their in zip(ours, theirs, strict=True))


def _verdict(figure: Figure, median: float, share: float | None) -> tuple[str, bool]:
    """The floors and what became of them. A figure misses only if it misses all that it has."""
    floors: list[tuple[str, bool]] = []
    if figure.floor is not None:
        floors.append((f"{figure.floor:,g}{figure.unit}", figure.holds(median, figure.floor)))
    if figure.share is not None and share is not None:
        floors.append((f"{figure.share:g} %", figure.holds(share, figure.share)))
    is_met = not floors or any(holds for _, holds in floors)
    text = ", ".join(
        f"{floor} {'ok' if holds else 'below' if figure.is_rate else 'above'}" for floor, holds in floors
    )
    return text if is_met else f"{text}: MISSED", is_met


def _spread(values: Sequence[float], unit: str) -> str:
    """The median, the least and the most."""
    digits = 0 if statistics.median(values) >= 100 else 2
    median, least, most = (
        f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values))
    )
    return f"{median}{unit} ({least}-{most})"


def report_machine(of_machine: Values) -> None:
    print()
    for key, figure in YARDSTICKS.items():
        print(f"{figure.name:<44}{_spread(of_machine[key], figure.unit)}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"how often each is measured (default: {ROUNDS})"
    )
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, help="leave the other measurements out")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds: at least 1")
    return given


def main() -> int:
    given = arguments()
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    print(
        f"load {load}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, {given.rounds} rounds, {WORKERS} workers"
    )
    with nothing_left():
        of_stoker, of_standin, of_machine = measure(given.only or list(MEASUREMENTS), given.rounds)
    good = report(of_stoker, of_standin)
    report_machine(of_machine)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
