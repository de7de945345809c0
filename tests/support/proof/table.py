"""The table of the long runs in docs/guarantees.md, made from the ledger and from nothing else."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from support.proof.harness import Harness
from support.proof.ledger import Ledger, Piece
from support.sources import ROOT

PAGE = ROOT / "docs" / "guarantees.md"
BEGIN = "<!-- long runs: written by `make proof-table` from tests/faults/results -->"
END = "<!-- end of the long runs -->"

_HEAD = """\
| what was done | so far | goal | violations | with it | seeds | from | to | commits |
|---|---|---|---|---|---|---|---|---|"""

LEVELS = ("us", "ms", "mib")
"""Ends of the names of what is measured: of several pieces the most counts, not the sum."""


def table(harnesses: Mapping[str, Harness], ledger: Ledger) -> str:
    """A row for each harness. LookupError for results of one that is no more."""
    for name in ledger.names():
        if name not in harnesses:
            raise LookupError(f"{ledger.directory} has results of {name}, and there is no such harness")
    rows = [_row(harness, ledger.pieces(name)) for name, harness in harnesses.items()]
    return "\n".join([_HEAD, *rows])


def done(harness: Harness, pieces: Iterable[Piece]) -> int:
    """So much of its goal."""
    return sum(piece.counts.get(harness.unit, 0) for piece in pieces)


def _row(harness: Harness, pieces: list[Piece]) -> str:
    unit = harness.unit.replace("_", " ")
    cells = [harness.title, f"{done(harness, pieces):,} {unit}", f"{harness.goal:,}"]
    if not pieces:
        return _joined([*cells, "", "", "", "", "", ""])
    dates = sorted(piece.date for piece in pieces)
    return _joined(
        [
            *cells,
            str(sum(len(piece.violations) for piece in pieces)),
            _with_it(harness, pieces),
            f"{len({piece.seed for piece in pieces}):,}",
            dates[0],
            dates[-1],
            _commits(pieces),
        ]
    )


def _with_it(harness: Harness, pieces: Iterable[Piece]) -> str:
    """Everything else that was counted or measured."""
    counts: dict[str, list[int]] = {}
    for piece in pieces:
        for name, count in piece.counts.items():
            counts.setdefault(name, []).append(count)
    counts.pop(harness.unit, None)
    return ", ".join(_total(name, each) for name, each in counts.items())


def _total(name: str, counts: list[int]) -> str:
    what, _, unit = name.rpartition("_")
    if what and unit in LEVELS:
        return f"{what.replace('_', ' ')} at most {max(counts):,} {unit}"
    return f"{sum(counts):,} {name.replace('_', ' ')}"


def _joined(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _commits(pieces: Iterable[Piece]) -> str:
    """How many, and the latest."""
    commits = list(dict.fromkeys(piece.commit for piece in pieces))
    return f"`{commits[-1]}`" if len(commits) == 1 else f"{len(commits)}, last `{commits[-1]}`"


def with_table(page: str, text: str) -> str:
    """The page with the table in its place. ValueError if the place is not marked, or twice."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"the place for the table is to be marked once, by {BEGIN} and {END}")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}"


def rewrite(harnesses: Mapping[str, Harness], ledger: Ledger, path: Path = PAGE) -> bool:
    """Bring the page up to date; whether it was not."""
    page = path.read_text(encoding="utf-8")
    new = with_table(page, table(harnesses, ledger))
    if new != page:
        path.write_text(new, encoding="utf-8")
    return new != page
