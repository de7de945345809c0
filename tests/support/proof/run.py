"""Running harnesses piece by piece, until their goals are reached, the time is over, or a promise broke.

The harness that is farthest from its goal has the next turn, so a run that is ended at any moment has
done something of everything. What was done before is in the ledger, and is not done again.
"""

import time
import traceback
from collections.abc import Callable, Mapping

from support.proof.harness import Harness, Tally
from support.proof.ledger import Ledger, Piece, commit, today
from support.proof.table import done

Say = Callable[[str], None]


def replay(name: str, seed: int, amount: int) -> str:
    """The line that does the same again."""
    return f"PYTHONPATH=tests .venv/bin/python -m support.proof {name} --seed {seed} --amount {amount}"


def share(harness: Harness, ledger: Ledger) -> float:
    """How much of its goal is reached."""
    return done(harness, ledger.pieces(harness.name)) / harness.goal


def next_harness(harnesses: Mapping[str, Harness], ledger: Ledger) -> Harness | None:
    """The one farthest from its goal; None if all are there."""
    shares = {name: share(harness, ledger) for name, harness in harnesses.items()}
    left = [name for name in harnesses if shares[name] < 1]
    return harnesses[min(left, key=lambda name: shares[name])] if left else None


def runnable(harnesses: Mapping[str, Harness], say: Say) -> dict[str, Harness]:
    """Those that this host can run; of the others it is said why not."""
    reasons = {name: harness.needs() for name, harness in harnesses.items()}
    for name, reason in reasons.items():
        if reason:
            say(f"{name}: left out, {reason}")
    return {name: harness for name, harness in harnesses.items() if not reasons[name]}


def say_reached(harnesses: Mapping[str, Harness], ledger: Ledger, say: Say) -> None:
    """Of which there is nothing left to do: a run that does nothing must not look like one that failed to."""
    for name, harness in harnesses.items():
        if share(harness, ledger) >= 1:
            say(f"{name}: has reached its goal; --amount runs it again")


def run_piece(harness: Harness, seed: int, amount: int, say: Say) -> Piece | None:
    """One piece; None if the harness itself failed, which is said."""
    started_s, before = time.monotonic(), commit()
    try:
        tally = harness.run(seed, amount)
    except Exception:  # noqa: BLE001  a harness that failed has proved nothing, and must not stop the others
        say(traceback.format_exc())
        say(f"{harness.name} failed; again: {replay(harness.name, seed, amount)}")
        return None
    if not tally.counts.get(harness.unit):
        tally = Tally(tally.counts, [*tally.violations, f"the harness did nothing, of {harness.unit}"])
    seconds = round(time.monotonic() - started_s, 1)
    violations = list(tally.violations)
    return Piece(harness.name, seed, amount, dict(tally.counts), violations, seconds, before, today())


def say_piece(piece: Piece, say: Say) -> None:
    """What was done, and what was found with the line to see it again."""
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in piece.counts.items())
    say(f"{piece.harness}: {counts} in {piece.seconds} s, {len(piece.violations)} violations")
    for violation in piece.violations:
        say(f"  VIOLATION {violation}")
    if piece.violations:
        say(f"  again: {replay(piece.harness, piece.seed, piece.amount)}")


def run_pieces(
    harnesses: Mapping[str, Harness],
    ledger: Ledger,
    say: Say,
    *,
    pieces_max: int | None = None,
    until_s: float | None = None,
) -> bool:
    """Pieces until a bound; whether every one of them ran and found nothing."""
    left = dict(harnesses)
    sound = True
    count = 0
    while pieces_max is None or count < pieces_max:
        harness = next_harness(left, ledger)
        if harness is None or (until_s is not None and time.monotonic() >= until_s):
            break
        piece = run_piece(harness, ledger.next_seed(harness.name), harness.piece, say)
        if piece is not None:
            ledger.add(piece)
            say_piece(piece, say)
        if piece is None or piece.violations:
            # More of the same would only say the same.
            sound = False
            del left[harness.name]
        count += 1
    return sound


def broken(harnesses: Mapping[str, Harness], ledger: Ledger) -> list[Piece]:
    """Pieces of the ledger that found something."""
    return [piece for name in harnesses for piece in ledger.pieces(name) if piece.violations]
