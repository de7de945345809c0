"""Rows that fit the terminal they go to: texts are cut, and columns left out that matter least.

Only where a terminal is: a pipe or a file gets everything.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .escape import escape, shorten

_GAP = 2
"""Blanks between columns."""


class Fitted(NamedTuple):
    """A table as far as it fits, escaped."""

    heads: list[str]
    rows: list[list[str]]
    left_out: list[str]
    """Heads of the columns that do not."""


def terminal_width() -> int | None:
    """Of the terminal that stdout goes to; None if it goes elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    # 0 of one that does not know.
    return os.get_terminal_size(sys.stdout.fileno()).columns or None


def fitted(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    texts: Mapping[str, int],
    spare: Sequence[str],
) -> Fitted:
    """`texts`: columns that may be cut, the first of them first, and to what width at most. `spare`: columns
    that may go, the first of them first. All others stay whole, even if they do not fit."""
    safe = {head: [escape(row[at]) for row in rows] for at, head in enumerate(heads)}
    needs = {head: max(map(len, (head, *cells))) for head, cells in safe.items()}
    if width is None:
        width = sum(needs.values()) + _GAP * len(needs)
    left_out = _left_out(needs, width, texts, spare)
    kept = [head for head in heads if head not in left_out]
    over = sum(needs[head] + _GAP for head in kept) - _GAP - width
    for head, least in texts.items():
        if head in kept and over > 0:
            cut = max(min(over, needs[head] - max(least, len(head))), 0)
            safe[head] = [shorten(cell, needs[head] - cut) for cell in safe[head]]
            over -= cut
    return Fitted(kept, [[safe[head][at] for head in kept] for at in range(len(rows))], left_out)


def _left_out(
    needs: Mapping[str, int], width: int, texts: Mapping[str, int], spare: Sequence[str]
) -> list[str]:
    """As many of the spare columns as must go if texts are cut as far as they may be."""
    least = {head: min(need, max(texts.get(head, need), len(head))) + _GAP for head, need in needs.items()}
    total = sum(least.values()) - _GAP
    left_out: list[str] = []
    for head in spare:
        if total <= width:
            break
        total -= least[head]
        left_out.append(head)
    return left_out
