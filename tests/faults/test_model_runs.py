"""The core against a naive model: no disagreement, and one when a rule of either is broken."""

import pytest
from hypothesis import Phase
from support.core_against_model import CoreAgainstModel
from support.faults.model_runs import HARNESS, examples
from support.model import Model, ModelJob

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLES = 100


class LenientModel(Model):
    """Lets a job that was kicked keep its place."""

    def kick(self, id: str, boot_ms: int) -> str:
        position = self.jobs[id].position if id in self.jobs else 0
        answer = super().kick(id, boot_ms)
        if answer == "kicked":
            self.jobs[id].position = position
        return answer


class ImpatientModel(Model):
    """Charges an attempt although nobody is to blame."""

    def end(self, job: ModelJob, outcome: str, after_ms: int | None = None) -> None:
        super().end(job, outcome, after_ms)
        job.charged += outcome == "released"


def against(model: type[Model]) -> type[CoreAgainstModel]:
    """The machine with another model."""

    class Other(CoreAgainstModel):
        model_class = model

    return Other


def test_core_and_model_agree(seed: int) -> None:
    tally = HARNESS.run(seed, EXAMPLES)
    assert tally.violations == []
    assert tally.counts["examples"] >= EXAMPLES


@pytest.mark.parametrize("model", [LenientModel, ImpatientModel])
def test_disagreement_is_told_step_by_step(model: type[Model]) -> None:
    (found,) = examples(1, EXAMPLES, against(model), phases=[Phase.generate]).violations
    assert "state.begin(" in found and "state.teardown()" in found
