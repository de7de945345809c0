"""The core against a naive model, for many random sequences of steps (`support.core_against_model`).

A sequence that the core and the model disagree about is made as short as it gets and told step by step.
"""

from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from support.core_against_model import CoreAgainstModel
from support.proof.harness import Harness, Tally

STEPS = 60
TOLD_MAX = 20_000
"""Characters of a disagreement that are told."""


def examples(
    seed_: int,
    amount: int,
    machine: type[CoreAgainstModel] = CoreAgainstModel,
    *,
    phases: Sequence[Phase] = (Phase.generate, Phase.shrink),
) -> Tally:
    """So many sequences of steps, drawn from a seed."""
    seeded: type[CoreAgainstModel] = type("Seeded", (machine,), {"begun": 0})
    how = settings(
        max_examples=amount,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=phases,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
    )
    violations: list[str] = []
    try:
        run_state_machine_as_test(seed(seed_)(seeded), settings=how)
    except Exception as error:  # noqa: BLE001  whatever a step raised, the core or the model does not bear it
        violations.append(_told(error))
    return Tally({"examples": seeded.begun}, violations)


def _told(error: BaseException) -> str:
    notes: list[str] = getattr(error, "__notes__", [])
    return "\n".join([f"{type(error).__name__}: {error}", *notes])[:TOLD_MAX]


HARNESS = Harness(
    name="model_runs",
    title=f"the core against a naive model, random sequences of up to {STEPS} steps",
    unit="examples",
    goal=5_000,
    piece=250,
    run=examples,
)
