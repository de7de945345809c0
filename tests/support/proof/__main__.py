"""`PYTHONPATH=tests python -m support.proof`: the long tier, in pieces that resume. See CONTRIBUTING.md.

Exit code 1 if a violation was found now or is in the ledger, or a harness failed; 0 otherwise, also
when it was told to end: what is done is written down, what was under way is not.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from support.proof.harness import Harness
from support.proof.harnesses import all_harnesses
from support.proof.ledger import DamagedLedgerError, Ledger
from support.proof.run import (
    broken,
    next_harness,
    replay,
    run_piece,
    run_pieces,
    runnable,
    say_piece,
    say_reached,
    share,
)
from support.proof.table import PAGE, rewrite

SEED_DRAWN_MAX = 1_000_000


def main(arguments: Sequence[str]) -> int:
    """The whole command."""
    every = all_harnesses()
    asked = _parse(arguments, every)
    try:
        return _run(asked, every)
    except DamagedLedgerError as error:
        _say(str(error))
        return 1


def _run(asked: Any, every: Mapping[str, Harness]) -> int:
    chosen = {name: every[name] for name in asked.harness or every}
    ledger = Ledger()
    _prepare_process()
    if asked.list:
        _list(chosen, ledger)
        return 0
    if asked.table:
        _rewrite(every, ledger)
        return 0 if _is_clean(every, ledger) else 1
    if asked.seed is not None or asked.amount is not None:
        return _replay(chosen[asked.harness[0]], asked.seed, asked.amount)
    return _prove(chosen, every, ledger, asked)


def _parse(arguments: Sequence[str], every: Mapping[str, Harness]) -> Any:
    parser = argparse.ArgumentParser(prog="python -m support.proof", description="Fault runs, in pieces.")
    parser.add_argument("harness", nargs="*", help="only these (default: all)", metavar="HARNESS")
    parser.add_argument("--pieces", type=int, help="so many pieces at most")
    parser.add_argument("--minutes", type=float, help="begin no piece after so many minutes")
    parser.add_argument("--list", action="store_true", help="list harnesses and how far they are")
    parser.add_argument("--table", action="store_true", help=f"only rewrite the table in {PAGE.name}")
    parser.add_argument("--seed", type=int, help="run one piece again, and write nothing down")
    parser.add_argument(
        "--amount", type=int, help="the same, so much of it; without --seed by a seed of its own"
    )
    asked = parser.parse_args(arguments)
    for name in asked.harness:
        if name not in every:
            parser.error(f"no harness {name}; there are {', '.join(every)}")
    if (asked.seed is not None or asked.amount is not None) and len(asked.harness) != 1:
        parser.error("--seed and --amount are for one harness: name it")
    if asked.amount is not None and asked.amount < 1:
        parser.error("--amount is at least 1")
    return asked


def _prepare_process() -> None:
    # A shell starts what it puts into the background with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # What this machine's daemons are told must not reach those of a harness.
    os.environ["STOKER_CONFIG"] = os.devnull


def _say(line: str) -> None:
    print(line, flush=True)


def _list(chosen: Mapping[str, Harness], ledger: Ledger) -> None:
    for name, harness in chosen.items():
        reason = harness.needs()
        note = f"  (not on this host: {reason})" if reason else ""
        if any(piece.violations for piece in ledger.pieces(name)):
            note += "  (VIOLATED)"
        percent = 100 * min(share(harness, ledger), 1)
        _say(f"{name:<24} {percent:5.1f} % of {harness.goal:,} {harness.unit}{note}")


def _rewrite(every: Mapping[str, Harness], ledger: Ledger) -> None:
    if rewrite(every, ledger):
        _say(f"{PAGE} is up to date again")


def _replay(harness: Harness, seed: int | None, amount: int | None) -> int:
    if seed is None:
        seed = random.randrange(1, SEED_DRAWN_MAX)
        _say(f"{harness.name}: by seed {seed}")
    piece = run_piece(harness, seed, amount or harness.piece, _say)
    if piece is None:
        return 1
    say_piece(piece, _say)
    return 1 if piece.violations else 0


def _prove(chosen: Mapping[str, Harness], every: Mapping[str, Harness], ledger: Ledger, asked: Any) -> int:
    until_s = None if asked.minutes is None else time.monotonic() + 60 * asked.minutes
    sound = True
    try:
        able = runnable(chosen, _say)
        if asked.harness or next_harness(able, ledger) is None:
            say_reached(able, ledger, _say)
        sound = run_pieces(able, ledger, _say, pieces_max=asked.pieces, until_s=until_s)
    except* KeyboardInterrupt:
        # By itself, or from among the tasks of a harness.
        _say("told to end; the piece that was under way is not counted")
    with contextlib.suppress(KeyboardInterrupt):
        _rewrite(every, ledger)
    return 0 if _is_clean(every, ledger) and sound else 1


def _is_clean(every: Mapping[str, Harness], ledger: Ledger) -> bool:
    """Whether no promise was seen broken, by whatever harness and whenever; else it is said which."""
    found = broken(every, ledger)
    for piece in found:
        _say(f"in the ledger: {piece.harness}, at {piece.commit}, {len(piece.violations)} violations")
        for violation in piece.violations:
            _say(f"  VIOLATION {violation}")
        _say(f"  again: {replay(piece.harness, piece.seed, piece.amount)}")
    return not found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
