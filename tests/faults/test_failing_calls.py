"""Calls to the disk that fail, drawn from all there are; and broken builds that do not take it to heart."""

import pytest
from support.committers import eager_committer
from support.faults.failing_calls import HARNESS, SHORT, Case, cases, run, try_all

from stoker.broker.sqlite import errors

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CASES = 300
CASES_BROKEN = 40


def test_whatever_call_fails_no_answer_leaves_and_the_next_start_is_right(seed: int) -> None:
    tally = HARNESS.run(seed, CASES)
    assert tally.violations == []
    assert tally.counts["cases"] == CASES
    assert all(tally.counts[outcome] > CASES // 20 for outcome in ("unnoticed", "waited", "ended"))


def test_every_call_of_the_run_is_a_case() -> None:
    every = cases(1)
    assert len(set(every)) == len(every)
    for operation in ("write", "sync", "truncate", "read", "size"):
        nths = {case.nth for case in every if case.operation == operation}
        assert nths == set(range(1, len(nths) + 1))
    assert {case.operation for case in every if case.error == SHORT} == {"read", "write"}


def test_read_that_finds_half_of_what_was_there_is_no_answer() -> None:
    short = [case for case in cases(1) if (case.operation, case.error) == ("read", SHORT) and case.for_ever]
    tally = try_all(1, short[::3])
    assert tally.violations == []
    # Some are looks at the end of a file, of which nothing is missing; some come when all is healed.
    assert tally.counts["ended"] > tally.counts["cases"] / 2


def test_answer_before_the_commit_is_found_out(seed: int) -> None:
    tally = run(seed, CASES_BROKEN, eager_committer)
    assert [fault for fault in tally.violations if "left after the error" in fault]


def always(*_: object) -> bool:
    return True


def never(*_: object) -> bool:
    return False


def test_taking_any_error_for_a_full_disk_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "is_full", always)
    syncs = [case for case in cases(1) if case.operation == "sync" and case.for_ever]
    tally = try_all(1, syncs[20:40])
    assert [fault for fault in tally.violations if "never lacking" in fault]


def test_taking_a_full_disk_for_the_end_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "is_full", never)
    fulls: list[Case] = [case for case in cases(1) if case.is_full]
    tally = try_all(1, fulls[200:220])
    assert [fault for fault in tally.violations if "the broker ended" in fault]
