"""The demo's verdict: what it counts, what makes it fail, and the form of its last line."""

from typing import Any

import attrs
import pytest

from stoker.demo.verdict import Verdict


def a_verdict(**fields: Any) -> Verdict:
    """Of a run of two jobs in which all went as planned, unless `fields` say otherwise."""
    verdict = Verdict(jobs=2, slots=1, planned_failures=0, done=2, workers_killed=1, brokers_killed=1)
    return attrs.evolve(verdict, **fields)


def a_job(*outcomes: str) -> dict[str, object]:
    return {
        "id": "j1",
        "history": [
            {"outcome": outcome, "reason": "signal 9", "token_epoch": 3, "token_counter": counter}
            for counter, outcome in enumerate(outcomes, 1)
        ],
    }


def test_run_as_planned_holds() -> None:
    assert a_verdict().judge()


@pytest.mark.parametrize(
    "fields", [{"done": 1}, {"planned_failures": 2}, {"workers_killed": 0}, {"brokers_killed": 2}]
)
def test_anything_that_is_not_as_planned_fails(fields: dict[str, int]) -> None:
    assert not a_verdict(**fields).judge()


def test_lost_job_fails() -> None:
    verdict = a_verdict()
    verdict.count_missing("j1", "not found")
    assert (verdict.lost, verdict.judge()) == (1, False)


def test_dead_job_fails() -> None:
    verdict = a_verdict(done=1)
    verdict.count_ended("j1", "dead", "no more attempts", is_right=False)
    assert (verdict.dead, verdict.judge()) == (1, False)


def test_wrong_answer_fails() -> None:
    verdict = a_verdict(done=1)
    verdict.count_ended("j1", "done", "", is_right=False)
    assert (verdict.done, verdict.wrong, verdict.judge()) == (2, 1, False)


@pytest.mark.parametrize("outcome", ["crash", "lost", "released", "shutdown"])
def test_delivery_after_an_end_without_answer_is_a_duplicate(outcome: str) -> None:
    verdict = a_verdict()
    verdict.count_attempts(a_job(outcome, "ok"))
    assert verdict.duplicates == [f"duplicate job=j1 after token=3.1 reason={outcome} 'signal 9'"]


def test_retry_after_an_error_is_a_failure_and_no_duplicate() -> None:
    verdict = a_verdict(planned_failures=2)
    verdict.count_attempts(a_job("error", "error", "ok"))
    assert (verdict.failures, verdict.duplicates, verdict.judge()) == (2, [], True)


def test_more_duplicates_than_slots_fail() -> None:
    verdict = a_verdict(slots=1)
    verdict.count_attempts(a_job("crash", "crash", "ok"))
    assert not verdict.judge()


def test_hostile_reason_is_escaped() -> None:
    verdict = a_verdict()
    job = a_job("crash", "ok")
    assert isinstance(job["history"], list)
    job["history"][0]["reason"] = "\x1b[2J\n"
    verdict.count_attempts(job)
    assert verdict.duplicates[0].endswith(r"'\x1b[2J\n'")


def test_last_line_has_its_fixed_form() -> None:
    assert a_verdict().line(1.25) == (
        "jobs=2 done=2 dead=0 lost=0 wrong=0 duplicates=0 workers_killed=1 brokers_killed=1 seconds=1.2"
    )
