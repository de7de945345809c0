"""Inspection: everything that a broker knows of its jobs at the end of a run, as rows for the oracle.

And what logs say. Jobs are shown many at a time, because there are tens of thousands.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from stoker import Client
from stoker.client.session import Answered
from stoker.client.wire import Wire
from stoker.proto import limits
from stoker.proto.messages import Show

from .. import history as h

WINDOW = 64
ANSWER_S = 30.0

Job = Mapping[str, Any]


def shown(socket: str, ids: Sequence[str]) -> list[Job]:
    """`show` of each of them."""
    wire = Wire(socket, ANSWER_S)
    try:
        return [job for at in range(0, len(ids), WINDOW) for job in _shown(wire, ids[at : at + WINDOW])]
    finally:
        wire.close()


def _shown(wire: Wire, ids: Sequence[str]) -> Iterator[Job]:
    requests = [wire.request(Show(id)) for id in ids]
    wire.write(b"".join(frame for _, frame in requests), ANSWER_S)
    found: dict[int, Job] = {}
    for _ in requests:
        answer = wire.receive(ANSWER_S)
        assert isinstance(answer, Answered), f"no answer to show: {answer}"
        found[answer.request] = answer.message[0]
    return (found[number] for number, _ in requests)


def ended(socket: str) -> h.Ended:
    """Every row, and what the broker counts."""
    with Client(socket) as client:
        jobs = shown(socket, [str(job["id"]) for job in client.jobs()])
        queues = client.status()["queues"]
    states = ("scheduled", "ready", "leased", "done", "dead", "cancelled")
    counts = {(name, state): int(queue[state]) for name, queue in queues.items() for state in states}
    return h.Ended(time.monotonic_ns() // 1_000_000, tuple(map(row_of, jobs)), counts)


def row_of(job: Job) -> h.Row:
    """One shown job as a row."""
    policy = job["policy"]
    return h.Row(
        job["id"],
        job["number"],
        job["queue"],
        job["state"],
        job["charged"],
        job["crashes"],
        policy["attempts_max"],
        policy["crashes_max"],
        tuple(map(_on_record, job["history"])),
    )


def _on_record(attempt: Mapping[str, Any]) -> h.OnRecord:
    return h.OnRecord(
        (attempt["token_epoch"], attempt["token_counter"]),
        attempt["outcome"],
        attempt["reason"],
        attempt["started_at_ms"],
        attempt["ended_at_ms"],
    )


_CHARGED = frozenset({"error", "timeout", "memory", "permanent", "crash", "lost"})
_CRASHES = frozenset({"crash", "lost"})


def retries(job: Job, late_ms: int) -> Iterator[h.Retried]:
    """Its retries that had a backoff, by what is on record. By the wall clock, which nobody has set meanwhile."""
    policy, attempts = job["policy"], job["history"]
    charged = crashes = 0
    if len(attempts) >= limits.OUTCOMES_KEPT:
        return
    for attempt, following in pairwise(attempts):
        charged += attempt["outcome"] in _CHARGED
        crashes += attempt["outcome"] in _CRASHES
        is_first_crash = attempt["outcome"] in _CRASHES and crashes == 1
        if attempt["outcome"] in _CHARGED and not is_first_crash:
            base_ms, cap_ms = policy["backoff_ms"], policy["backoff_cap_ms"]
            at_ms, failed_ms = following["started_at_ms"], attempt["ended_at_ms"]
            yield h.Retried(at_ms, job["id"], failed_ms, charged, base_ms, cap_ms, late_ms)


_LOGGED = re.compile(r"^\S+ (?:broker|pool|supervisor|worker|zygote) (\w+)(?: (.*))?$")
_ID = re.compile(r"\bid=(\S+)")


def logged(path: Path) -> Iterator[h.Logged]:
    """Lines of a log. Those that no daemon writes on purpose are of an event `Traceback`, if they begin one."""
    for line in path.read_text(errors="replace").splitlines():
        if match := _LOGGED.match(line):
            id = _ID.search(match[2] or "")
            yield h.Logged(0, match[1], id[1] if id else "")
        elif line.startswith("Traceback"):
            yield h.Logged(0, "Traceback", f"in {path.name}")
