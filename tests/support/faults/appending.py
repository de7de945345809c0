"""Files that several processes append to: each piece by one write, so that pieces never mix."""

import os
from pathlib import Path


def append(path: Path, piece: bytes) -> None:
    """Add it. It outlives every process; nothing cuts the power."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, piece)
    finally:
        os.close(file)


def size(path: Path) -> int:
    """Bytes of it, which only grow; 0 while it is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
