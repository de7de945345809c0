"""Power cuts under the real broker, from a trace of its system calls; a few hundred of them."""

import pytest
from support.faults.gate import hindrance
from support.faults.place import program
from support.faults.script import FLOOD_JOBS
from support.faults.trace_images import Broker, run
from support.proof.harness import Tally

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := hindrance():
        pytest.skip(reason)


def test_power_cut_loses_nothing_that_was_answered_and_each_answer_follows_its_sync(seed: int) -> None:
    done = run(seed, 200, lives=2)
    assert done.violations == []
    assert (done.counts["images"], done.counts["traces"]) == (200, 1)
    # Twice two plays of the script, in each of which so many requests leave a mark in the log, and a flood.
    assert done.counts["answers"] >= 4 * 40 + FLOOD_JOBS
    assert done.counts["syncs"] >= 4 * 30


def of_broken(broker: Broker) -> Tally:
    """What is found of one, in one life and so few images that only a sure find counts."""
    return run(1, 40, broker, lives=1)


@pytest.mark.parametrize(
    "broker",
    [
        pytest.param(Broker(program("support.faults.broken.early_answers:main")), id="answers early"),
        pytest.param(Broker(options=["--synchronous", "NORMAL"]), id="NORMAL"),
        pytest.param(Broker(swallows_syncs=True), id="syncs are swallowed"),
    ],
)
def test_broker_that_does_not_sync_before_it_answers_is_found_out(broker: Broker) -> None:
    violations = of_broken(broker).violations
    assert any("was answered before it was synced" in text for text in violations)
    assert any("cut after event" in text for text in violations)


def test_broker_that_does_not_sync_a_batch_of_many_rows_is_found_out() -> None:
    violations = of_broken(Broker(program("support.faults.broken.hasty_batches:main"))).violations
    early = [text for text in violations if "was answered before it was synced" in text]
    # Of all the others nothing: they are in small batches.
    assert early and all("-bulk-" in text for text in early)
