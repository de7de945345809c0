"""The ledger: what the long runs have done so far, one line of JSON for each piece, in the repository.

A line is written when its piece is over, so a piece that was interrupted never happened. Nothing is
ever counted from anywhere else: what the guarantees claim is the sum of these lines. A line with a
violation stays, and fails every later run, until somebody has mended its cause and takes it out.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from support.sources import ROOT

RESULTS = ROOT / "tests" / "faults" / "results"
GIT_S = 30.0

WRITTEN_BY_RUNS = ("tests/faults/results", "docs/guarantees.md")
"""A run changes these itself: they do not make the tree another one."""


class DamagedLedgerError(ValueError):
    """A line is none. Nothing is counted while it is there: it may have had a violation."""


class Piece(NamedTuple):
    """One line of the ledger."""

    harness: str
    seed: int
    amount: int
    counts: Mapping[str, int]
    violations: Sequence[str]
    seconds: float
    commit: str
    """Ends in `+changes` if the tree was not what that commit holds."""
    date: str


class Ledger:
    """The lines of all harnesses, one file each."""

    def __init__(self, directory: Path = RESULTS) -> None:
        self.directory = directory

    def pieces(self, harness: str) -> list[Piece]:
        """All of a harness, oldest first. DamagedLedgerError names the line that is none."""
        path = self._path(harness)
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [_parsed(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]

    def add(self, piece: Piece) -> None:
        """Write a piece down, whole."""
        self.directory.mkdir(parents=True, exist_ok=True)
        line = json.dumps(piece._asdict(), ensure_ascii=False) + "\n"
        with open(self._path(piece.harness), "ab", buffering=0) as file:
            file.write(line.encode())
            os.fsync(file.fileno())

    def names(self) -> list[str]:
        """Harnesses that have lines."""
        return sorted(path.stem for path in self.directory.glob("*.jsonl"))

    def next_seed(self, harness: str) -> int:
        """One that was not used: seeds count up, so that a harness may take its seed for a place to go on."""
        return max((piece.seed for piece in self.pieces(harness)), default=0) + 1

    def _path(self, harness: str) -> Path:
        return self.directory / f"{harness}.jsonl"


def _parsed(line: bytes, place: str) -> Piece:
    try:
        piece = Piece(**json.loads(line))
        # Whatever else is wrong with a field, these are what is added up.
        sum(piece.counts.values(), piece.seed + piece.amount)
        list(piece.violations)
    except (ValueError, TypeError, AttributeError) as error:
        advice = "bring it back from the history, or take it out and run that piece again"
        raise DamagedLedgerError(f"{place} is no piece: {error}; {advice}") from None
    return piece


def today() -> str:
    """Of this moment, in UTC."""
    return datetime.now(UTC).date().isoformat()


def commit(root: Path = ROOT) -> str:
    """What is being proved: the commit, and whether the tree differs from it."""
    try:
        name = _git(root, "rev-parse", "--short=10", "HEAD")
        others = [f":(exclude){path}" for path in WRITTEN_BY_RUNS]
        return name + ("+changes" if _git(root, "status", "--porcelain", "--", ".", *others) else "")
    except (OSError, subprocess.SubprocessError):
        # An unpacked archive has no history.
        return "unknown"


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, check=True, text=True, timeout=GIT_S
    )
    return done.stdout.strip()
