"""Each error has its exit code and a line that says what to do."""

import pytest

from stoker.cli.failure import ADVICE, error_line, exit_code
from stoker.client.pipeline import EnqueueManyError
from stoker.config.exits import Exit
from stoker.proto.errors import REFUSALS, OutcomeUnknown, StokerError, refusal


@pytest.mark.parametrize("code", REFUSALS)
def test_every_refusal_is_not_found_or_refused(code: str) -> None:
    expected = Exit.NOT_FOUND if code == "job_not_found" else Exit.REFUSED
    assert exit_code(refusal(code, "no")) is expected


def test_advice_is_for_code_words_that_exist() -> None:
    assert set(ADVICE) <= set(REFUSALS)


def test_failure_of_many_has_the_code_of_its_cause() -> None:
    error = EnqueueManyError("x", index=0, handles=[], unsettled=[])
    error.__cause__ = OutcomeUnknown("lost")
    assert exit_code(error) is Exit.UNKNOWN_OUTCOME


def test_error_without_a_code_of_its_own_is_a_failure() -> None:
    assert exit_code(StokerError("odd")) is Exit.FAILURE


def test_line_has_message_and_advice() -> None:
    line = error_line(refusal("not_finished", "job a is leased; cancel it first", {"id": "a"}))
    assert line == "stoker: not_finished: job a is leased; cancel it first; `stoker cancel a` does that"


def test_advice_about_a_job_that_is_not_named_stays_general() -> None:
    line = error_line(refusal("too_late", "job a is already done"))
    assert line == "stoker: too_late: job a is already done; see `stoker show ID`"


@pytest.mark.parametrize(
    ("detail", "waits"), [({"waits": True}, True), ({"waits": False}, False), ({}, False)]
)
def test_room_is_advised_to_be_waited_for_only_where_that_is_possible(
    detail: dict[str, object], *, waits: bool
) -> None:
    line = error_line(refusal("queue_full", "queue mail is full", detail))
    assert ("--room-wait" in line) is waits
    assert "raise that limit" in line


def test_who_is_in_another_namespace_is_not_told_to_be_root() -> None:
    line = error_line(refusal("forbidden", "in another namespace; run it elsewhere", {"namespace": "pid"}))
    assert line == "stoker: forbidden: in another namespace; run it elsewhere"


def test_error_without_words_has_its_name() -> None:
    assert error_line(StokerError()) == "stoker: StokerError"
