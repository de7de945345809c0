"""Ending a worker's whole tree: everything it started that is still there.

A process belongs to a worker if it carries the worker's nonce in its environment, is in the worker's
session, or descends from one that is, or from the worker itself. Each sign alone can be shaken off
(a program may start with an empty environment, in a session of its own, as an orphan), all three
together only on purpose, and not even then by a program that was run as a command. A look takes a few
milliseconds; it is repeated until it finds nobody, for what forks while it is looked at is found the next time.

For a worker that is to be killed, take the look before: while it lives, its children are still its
children.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from . import process
from .process import Pidfd, Stat

SWEEP_MS = 5000
"""A process that SIGKILL has not ended by then hangs in the kernel; the report then says so."""

NONCE_LENGTH_MIN = 8

KEEPERS = (process.NURSERY_NAME, process.SENTINEL_NAME)
"""Subreapers of programs that jobs run (see `commands`). As long as they live, whatever these programs start is
below them. So they are ended last."""

_LOOK_AFTER = (process.POOL_NAME, process.ZYGOTE_NAME, process.WORKER_NAME)
"""Who ends what was started below them."""

CALM_LOOKS = 2
"""So many looks in a row must find nobody else: what forks during one is found by the next."""

_PAUSE_S = 0.002


def members(worker_pid: int, nonce: str, stats: Iterable[Stat] | None = None) -> list[Stat]:
    """Living processes of a living worker's tree, the worker itself left out."""
    return _family(list(process.all_stats() if stats is None else stats), worker_pid, nonce, {worker_pid})


def orphans(worker_pid: int, nonce: str, stats: Iterable[Stat] | None = None) -> list[Stat]:
    """What is left of the tree of a worker that has ended and was reaped."""
    everybody = list(process.all_stats() if stats is None else stats)
    # Its children have other parents by now, and its pid may be somebody else's: then neither pid
    # nor session says anything. While a session has members its number is not given out again.
    reused = any(each.pid == worker_pid for each in everybody)
    return _family(everybody, 0 if reused else worker_pid, nonce, set())


def _family(everybody: list[Stat], session: int, nonce: str, roots: set[int]) -> list[Stat]:
    # Most processes carry no nonce at all: looking for none would find them all.
    assert len(nonce) >= NONCE_LENGTH_MIN, nonce
    protected = {os.getpid(), os.getppid(), *roots}
    others = [each for each in everybody if each.pid not in protected]
    family = roots | {each.pid for each in others if _is_marked(each, session, nonce)}
    # Parents need not have lower pids than their children, so go on until nobody joins.
    while joining := {each.pid for each in others if each.parent in family} - family:
        family |= joining
    return [each for each in others if each.pid in family and not each.has_ended]


def sweep(worker_pid: int, nonce: str, known: Iterable[Stat] = (), *, within_ms: int = SWEEP_MS) -> bool:
    """Kill the tree of a worker that has ended; False if some of it would not die in time.

    `known` are members seen while the worker lived.
    """
    return _kill_all(lambda: orphans(worker_pid, nonce), known, within_ms)


def _kill_all(look: Callable[[], Iterable[Stat]], known: Iterable[Stat], within_ms: int) -> bool:
    end = time.monotonic() + within_ms / 1000
    calm = 0
    suspects = {(each.pid, each.start_ticks): each for each in known}
    while True:
        for each in look():
            suspects[each.pid, each.start_ticks] = each
        suspects = {key: each for key, each in suspects.items() if _is_alive(each)}
        if not suspects:
            return True
        if time.monotonic() > end:
            return False
        others = [each for each in suspects.values() if process.name_of(each.pid) not in KEEPERS]
        calm = 0 if others else calm + 1
        for each in suspects.values() if calm >= CALM_LOOKS else others:
            send(each, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def sweep_own(nonce: str, *, within_ms: int = SWEEP_MS) -> bool:
    """For a process that lives on: kill what it started; False if some of it would not die in time."""
    return _kill_all(lambda: members(os.getpid(), nonce), (), within_ms)


def strays(socket: str) -> Iterator[Stat]:
    """What workers for the broker at this socket have started, with nobody of stoker left above it.

    Whatever belongs to a living pool has at least its supervisor above it, which is a subreaper.
    """
    everybody = {each.pid: each for each in process.all_stats() if each.pid > 1}
    lineage = _lineage()
    for each in everybody.values():
        if each.has_ended or each.pid in lineage:
            continue
        line = list(_line_up(each, everybody))
        # A line that breaks off has lost a parent during this look; the next sees who takes its place.
        if line[-1].parent > 1 or any(process.name_of(above.pid) in _LOOK_AFTER for above in line):
            continue
        if any(_is_of(above, socket) for above in line):
            yield each


def _line_up(each: Stat, everybody: Mapping[int, Stat]) -> Iterator[Stat]:
    """A process, its parent and so on, as far as they were seen."""
    seen = set[int]()
    above: Stat | None = each
    while above is not None and above.pid not in seen:
        seen.add(above.pid)
        yield above
        above = everybody.get(above.parent)


def _is_of(each: Stat, socket: str) -> bool:
    return bool(process.marker_of(each.pid)) and process.variable_of(each.pid, process.SOCKET) == socket


def sweep_strays(socket: str, *, within_ms: int = SWEEP_MS) -> int:
    """Kill these: nobody looks after them, because all of stoker was killed at once. How many there were.

    Before a pool takes jobs, some of which they may still be at.
    """
    known = list(strays(socket))
    if known:
        _kill_all(lambda: strays(socket), known, within_ms)
    return len(known)


def _lineage() -> set[int]:
    """This process and those above it: somebody may start a pool from within a job."""
    found, pid = set[int](), os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        now = process.stat(pid)
        pid = now.parent if now is not None else 0
    return found


def sweep_below(workers: Mapping[int, str], *, within_ms: int) -> bool:
    """Kill what workers have started, and not themselves; False if some of it would not die in time.

    `workers` are nonces by pid. They live, but are stopped, so that they start nothing more.
    """

    def look() -> Iterator[Stat]:
        stats = list(process.all_stats())
        for pid, nonce in workers.items():
            yield from members(pid, nonce, stats)

    return _kill_all(look, (), within_ms)


def _is_marked(each: Stat, session: int, nonce: str) -> bool:
    return (each.session == session and session > 1) or process.marker_of(each.pid) == nonce


def _is_alive(each: Stat) -> bool:
    now = process.stat(each.pid)
    return now is not None and now.start_ticks == each.start_ticks and not now.has_ended


def send(each: Stat, number: int) -> None:
    """Signal a process that was seen, if it is still that one and may be signalled."""
    try:
        target = Pidfd(each.pid)
    except (OSError, ValueError):
        # It has ended meanwhile, or may not be looked at; the next round sees which.
        return
    try:
        # The pid may have been reused between look and open; from here on it cannot be.
        if _is_alive(each):
            target.send(number)
    except PermissionError:
        # It runs as somebody else now. Whoever wanted it dead finds it alive at the next look.
        return
    finally:
        target.close()
