"""Second deliveries, counted: none while nothing fails, and a reason for each while workers are killed."""

from pathlib import Path

import pytest
from support.faults import duplicate_rate, happy_path
from support.faults.runs import Runs, repeated, wrongs
from support.history import Key

from stoker.proto.ids import uuid7

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOBS = 4_000
FEW_JOBS = 1_000
SECONDS = 5
BROKEN = "support.faults.broken"
REPEATING = f"{BROKEN}.repeats:main"
TWICE, ANEW, NEVER = (f"{BROKEN}.pushes:{how}" for how in ("twice", "anew", "never"))


def test_happy_path_has_no_second_delivery(seed: int) -> None:
    tally = happy_path.HARNESS.run(seed, JOBS)
    assert tally.violations == []
    assert tally.counts == {"jobs": JOBS, "second deliveries": 0}


def test_second_deliveries_under_kills_are_explained_each(seed: int) -> None:
    tally = duplicate_rate.HARNESS.run(seed, SECONDS)
    assert tally.violations == []
    assert tally.counts["worker kills"] > 0 and tally.counts["broker kills"] > 0
    assert tally.counts["jobs under worker kills"] > 0
    assert tally.counts["second deliveries under broker kills"] == 0


@pytest.mark.parametrize("broker", [TWICE, ANEW, REPEATING], ids=["twice", "anew", "repeats"])
def test_broker_that_delivers_jobs_twice_is_found_out(short_directory: Path, seed: int, broker: str) -> None:
    tally = happy_path.trial(short_directory, seed, FEW_JOBS, broker=broker)
    assert tally.counts["second deliveries"] > 0
    assert any(" ran as [" in text for text in tally.violations)


def test_broker_that_takes_for_done_what_never_ran_is_found_out(short_directory: Path, seed: int) -> None:
    tally = happy_path.trial(short_directory, seed, FEW_JOBS, broker=NEVER)
    assert any("is finished, and never ran" in text for text in tally.violations)


@pytest.mark.parametrize(
    ("broker", "found"),
    [(REPEATING, "'released'"), (TWICE, "and on record are [((")],
    ids=["repeats", "twice"],
)
def test_repeats_that_no_kill_explains_are_found_among_those_that_one_does(
    short_directory: Path, seed: int, broker: str, found: str
) -> None:
    tally = duplicate_rate.trial(short_directory, seed, 3, broker=broker)
    assert any(found in text for text in tally.violations), tally.violations


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "runs")


def run(runs: Runs, job_id: str, *tokens: Key) -> None:
    for token in tokens:
        runs.note(job_id, token)


def test_runs_are_read_as_they_were_noted(runs: Runs) -> None:
    once, twice = uuid7(), uuid7()
    run(runs, twice, (1, 1), (2, 2**53))
    run(runs, once, (1, 2))
    assert runs.count() == 3
    assert runs.tokens() == {twice: [(1, 1), (2, 2**53)], once: [(1, 2)]}
    assert repeated(runs.tokens()) == {twice: [(1, 1), (2, 2**53)]}


def test_one_run_for_each_job_that_is_finished_is_right(runs: Runs) -> None:
    ids = [uuid7() for _ in range(3)]
    for counter, job_id in enumerate(ids):
        run(runs, job_id, (1, counter))
    assert [*wrongs(runs.tokens(), ids, 3)] == []


def test_token_given_twice_and_jobs_from_nowhere_and_that_never_ran_are_wrong(runs: Runs) -> None:
    one, other, never, waits = (uuid7() for _ in range(4))
    run(runs, one, (1, 1))
    run(runs, other, (1, 1))
    assert [*wrongs(runs.tokens(), [one, never, waits], 2)] == [
        f"token (1, 1) was given for job {one} and again for {other}",
        f"job {other} ran, and was never stored",
        f"job {never} is finished, and never ran",
    ]
