"""Hours of a broker in a simulated world, with faults all along. Two rings:

- `simulated_hours`: the real core and committer, everything around them simulated.
- `simulated_broker_hours`: the whole of the real broker but its journal, on Trio in virtual time, with
  real sockets (`support.shell_simulation.life` says what is real).

A world has usual durations of leases and graces, a broker that crashes, stalls, and has a disk that
breaks, fills up and is slow; workers and supervisors that die, stop and are cut off; clients that repeat
themselves; an operator; clocks that step. What comes of it is judged by the checks after each step and by
the oracle at the end.

The first world of each piece is run twice and has to do the same: what is not decided by its number
cannot be found again.
"""

from collections.abc import Callable
from functools import partial

from support.proof.harness import Harness, Tally
from support.shell_simulation.trial import SHELL, SHELL_HOURS, shell_trial
from support.simulation.trial import Finding, trial
from support.simulation.world import LONG, LONG_HOURS

WORLDS_MAX = 10_000
"""Of one piece, so that no two pieces have a world in common."""

Trial = Callable[[int], Finding]


def worlds(run: Trial, hours_each: int, seed: int, hours: int) -> Tally:
    """So many hours, in worlds that are numbered on from the seed."""
    count = max(hours // hours_each, 1)
    assert count <= WORLDS_MAX, hours
    first = seed * WORLDS_MAX
    violations: list[str] = []
    for number in range(first, first + count):
        finding = run(number)
        violations += [f"world {number}: {fault}" for fault in finding.faults]
        if number == first and run(number).trace_hash != finding.trace_hash:
            violations.append(f"world {number} does not repeat itself")
    return Tally({"simulated_hours": count * hours_each, "worlds": count}, violations)


CORE = Harness(
    name="simulated_hours",
    title="core and committer in a simulated world, faults all along",
    unit="simulated_hours",
    goal=20_000,
    piece=200,
    run=partial(worlds, partial(trial, plan=LONG), LONG_HOURS),
)
BROKER = Harness(
    name="simulated_broker_hours",
    title="the whole broker but its journal on virtual time, peers and disk simulated, faults all along",
    unit="simulated_hours",
    goal=500,
    piece=6,
    run=partial(worlds, partial(shell_trial, plan=SHELL), SHELL_HOURS),
)
HARNESSES = (CORE, BROKER)
