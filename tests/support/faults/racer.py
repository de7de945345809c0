"""One of several brokers that start at the same instant on what is meant for one.

It has everything imported when it waits at the gate, which is a FIFO that opens for all at once. How it
ended, and how long after the start, it leaves in a file. Its way to the directory may be a mount that
only it can see.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from stoker.cli.main import main as stoker

_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 1 << 18


def bind_mount(source: str, target: str) -> None:
    """Show a directory under another name, to this process alone. OSError where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    steps: tuple[Callable[[], int], ...] = (
        lambda: libc.unshare(_CLONE_NEWNS),
        lambda: libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None),
        lambda: libc.mount(source.encode(), target.encode(), None, _MS_BIND, None),
    )
    for step in steps:
        if step() != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), target)


def run(entry: Callable[[], NoReturn]) -> None:
    """Wait for the start, run, and write down the end."""
    gate, result, source, target, *arguments = sys.argv[1:]
    if source:
        bind_mount(source, target)
    Path(f"{result}.ready").touch()
    with open(gate, "rb"):
        began_s = time.monotonic()
    sys.argv = ["stoker", *arguments]
    code: object = 0
    try:
        entry()
    except SystemExit as end:
        code = end.code or 0
    Path(f"{result}.part").write_text(f"{code} {time.monotonic() - began_s:.3f}")
    os.rename(f"{result}.part", result)


def main() -> None:
    run(stoker)
