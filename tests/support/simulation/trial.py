"""One seed tried: what was found wrong, and what a person needs to look at it."""

import attrs

from ..oracle import violations
from .world import STORMY, Plan, World


@attrs.frozen
class Finding:
    """The faults of one run, with its last events."""

    seed: int
    faults: list[str]
    last: list[str]
    trace_hash: str

    @property
    def promises(self) -> set[str]:
        """Names of the promises that were broken."""
        return {fault.partition(":")[0] for fault in self.faults}

    def __str__(self) -> str:
        return "\n".join(
            [
                *self.faults,
                "the last events:",
                *self.last,
                f"seed {self.seed}; again: pytest tests/simulation --seed {self.seed}",
            ]
        )


def trial(seed: int, plan: Plan = STORMY) -> Finding:
    """Run a seed to its end, or to the first step that a checker or the core itself objects to."""
    world = World(seed, plan)
    try:
        world.run()
        faults = violations(world.history.records)
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError) as error:
        # An assertion of a checker or of the core, or a plain fault of the core.
        faults = [fault(error)]
    return Finding(seed, faults, list(world.history.last), world.history.trace_hash)


def fault(error: BaseException) -> str:
    """What an exception says, and where it was raised."""
    return f"{error or type(error).__name__} ({_place(error)})"


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}" if trace is not None else ""
