"""Programs for sentinels to run, and what can be seen of them from outside.

Each gets a mark, an argument that no other process has. By it a test finds what it has started, whoever its
parent is by then, and signals nothing else.
"""

import itertools
import os
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from stoker.worker.commands.program import Program

ENV = {b"PATH": b"/usr/local/bin:/usr/bin:/bin"}

_counter = itertools.count(1)


def a_mark() -> str:
    """Of a program and all that it starts. As a number of seconds it is ten minutes and a bit."""
    return f"600.{os.getpid():07d}{next(_counter):05d}"


def a_program(
    *argv: str | bytes, directory: bytes = b"/", env: Mapping[bytes, bytes] = ENV, **fields: object
) -> Program:
    """See `Program` for the rest."""
    return Program([os.fsencode(each) for each in argv], directory, env, **fields)  # type: ignore[arg-type] # as given


def a_shell(text: str, *arguments: str, **fields: object) -> Program:
    """A shell with a script; its arguments are $1 and so on."""
    return a_program("sh", "-c", text, "sh", *arguments, **fields)  # type: ignore[arg-type] # as given


def a_python(text: str, *arguments: str, **fields: object) -> Program:
    """An interpreter with next to nothing loaded."""
    return a_program(sys.executable, "-ISs", "-c", textwrap.dedent(text), *arguments, **fields)  # type: ignore[arg-type] # as given


def living(mark: str) -> set[int]:
    """Pids of living processes with that mark among their arguments."""
    wanted = os.fsencode(mark)
    return {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has(pid, wanted)}


def _has(pid: int, mark: bytes) -> bool:
    # A zombie has no arguments any more.
    return pid != os.getpid() and mark in _read(f"/proc/{pid}/cmdline")


def zombies_below(root: int) -> list[int]:
    """Pids of zombies among a process's descendants."""
    parents, states = dict[int, int](), dict[int, str]()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        text = _read(f"/proc/{pid}/stat").decode("ascii", "replace")
        if text:
            fields = text[text.rindex(")") + 2 :].split()
            states[pid], parents[pid] = fields[0], int(fields[1])
    below = {root}
    while joining := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= joining
    return sorted(pid for pid in below - {root} if states[pid] == "Z")


def descriptors_of(pid: int) -> int:
    """How many a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def lowest_free_descriptor(pid: int) -> int:
    """A process that may have so many, and no more, can open nothing."""
    taken = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    return next(number for number in itertools.count() if number not in taken)


LIBRARYS_OWN_SIGNALS = 0b11 << 31
"""32 and 33. A process that the C library has spawned may ignore them, and Python cannot change that."""


def status_of(text: str) -> dict[str, str]:
    """The fields of a /proc/<pid>/status."""
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
