"""The four figures that stoker is held to, each beside its floor: `make bench`, on a quiet machine.

Uses what a user has: `stoker up`, the client, and /proc. 4 workers, handlers that do nothing, 100 bytes
of payload, `synchronous=FULL`. Every figure is the median of several rounds; the load of the machine
is printed first, because a busy one explains a bad figure. Ends with 1 if a figure misses its floor.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stoker import BrokerUnreachableError, Client, JobSpec

WORKERS = 4
TEXT = "x" * 95
"""As the only argument it makes a payload of 100 bytes."""

SEQUENTIAL_S = 2.0
PIPELINED_JOBS = 20_000
LATENCY_PER_S = 200
LATENCY_S = 3.0

Floor = tuple[str, str, float, bool]
"""Name, unit, floor, whether more is better."""


@contextmanager
def stoker_up() -> Generator[Client]:
    """A broker and a pool in a directory of their own, ready when this yields."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as directory:
        socket = os.path.join(directory, "s")
        command = [
            *(sys.executable, "-m", "stoker.cli.main", "up", "tasks:app", "--workers", str(WORKERS)),
            *("--socket", socket, "--data", os.path.join(directory, "data")),
        ]
        with open(os.path.join(directory, "log"), "wb") as log:
            process = subprocess.Popen(command, cwd=Path(__file__).parent, stderr=log, start_new_session=True)
        try:
            client = Client(socket)
            wait_for(lambda: len(workers(client)) == WORKERS, "workers")
            yield client
            client.close()
        except BaseException:
            sys.stderr.write(Path(directory, "log").read_text(errors="backslashreplace")[-4000:])
            raise
        finally:
            process.terminate()
            process.wait()


def wait_for(
    condition: Callable[[], bool], what: str, *, poll_s: float = 0.005, limit_s: float = 120
) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"not within {limit_s} s: {what}")
        time.sleep(poll_s)


def workers(client: Client) -> list[int]:
    """Pids of the workers; none while there is no broker."""
    try:
        return [int(worker["pid"]) for worker in client.status().get("workers", ())]
    except BrokerUnreachableError:
        return []


def finished(client: Client) -> int:
    queue = client.status().get("queues", {}).get("bench", {})
    return int(queue.get("done", 0)) + int(queue.get("dead", 0))


def settle(client: Client) -> None:
    """Wait until nothing of an earlier measurement is left to run."""

    def is_idle() -> bool:
        queue = client.status().get("queues", {}).get("bench", {})
        return not any(queue.get(state, 0) for state in ("scheduled", "ready", "leased"))

    wait_for(is_idle, "an idle queue")


def sequential(client: Client) -> float:
    """Durable enqueues a second of one client that waits for each."""
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < SEQUENTIAL_S:
        client.enqueue("no_op", [TEXT])
        count += 1
    return count / (time.perf_counter() - start)


def pipelined(client: Client) -> float:
    """Jobs a second from the first enqueue of one client to the last completion."""
    before, start = finished(client), time.perf_counter()
    client.enqueue_many(JobSpec("no_op", [TEXT]) for _ in range(PIPELINED_JOBS))
    wait_for(lambda: finished(client) - before >= PIPELINED_JOBS, "all jobs done")
    return PIPELINED_JOBS / (time.perf_counter() - start)


def latencies(client: Client) -> list[float]:
    """Milliseconds from just before `enqueue` to the first line of the handler, at a steady rate."""
    sent: list[tuple[int, str]] = []
    start = time.monotonic()
    for index in range(int(LATENCY_PER_S * LATENCY_S)):
        time.sleep(max(0.0, start + index / LATENCY_PER_S - time.monotonic()))
        at = time.monotonic_ns()
        sent.append((at, client.enqueue("start_time", [TEXT]).id))
    return [(client.wait(id).result - at) / 1e6 for at, id in sent]


def private_mb(pid: int) -> float:
    """Memory of a process that it shares with nobody."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = sum(
        int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))
    )
    return kilobytes * 1024 / 1e6


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def one_round(client: Client) -> dict[str, float]:
    figures = {"sequential": sequential(client)}
    settle(client)
    figures["pipelined"] = pipelined(client)
    settle(client)
    spread = latencies(client)
    figures["p50"], figures["p99"] = quantile(spread, 0.50), quantile(spread, 0.99)
    settle(client)
    figures["memory"] = statistics.fmean(private_mb(pid) for pid in workers(client))
    return figures


REPORT: dict[str, Floor] = {
    "sequential": ("sequential durable enqueues of one client", "/s", 2_000, True),
    "pipelined": ("jobs end to end of one pipelining client", "/s", 8_000, True),
    "p50": (f"enqueue to start at {LATENCY_PER_S} jobs/s, p50", " ms", float("inf"), False),
    "p99": (f"enqueue to start at {LATENCY_PER_S} jobs/s, p99", " ms", 2, False),
    "memory": ("private memory of an idle worker", " MB", 6, False),
}


def report(rounds: Sequence[dict[str, float]]) -> bool:
    """Print the medians; whether all floors are met."""
    good = True
    for key, (name, unit, floor, more) in REPORT.items():
        values = [figures[key] for figures in rounds]
        median = statistics.median(values)
        holds = median >= floor if more else median <= floor
        good = good and holds
        bound = "" if floor == float("inf") else f"{'at least' if more else 'at most'} {floor:,g}{unit}"
        verdict = "" if not bound else "ok" if holds else "MISSED"
        span = (
            f"({min(values):,.2f} to {max(values):,.2f})"
            if median < 100
            else f"({min(values):,.0f} to {max(values):,.0f})"
        )
        shown = f"{median:,.2f}" if median < 100 else f"{median:,.0f}"
        print(f"{name:<46} {shown + unit:>12}  {span:<24} {bound:<18} {verdict}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    print(
        f"load {load}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, {rounds} rounds, {WORKERS} workers"
    )
    with stoker_up() as client:
        good = report([one_round(client) for _ in range(rounds)])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
