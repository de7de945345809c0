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
    line = error_line(refusal("not_finished", "job a is leased; cancel it first"))
    assert line == "stoker: not_finished: job a is leased; cancel it first; `stoker cancel` does that"


def test_error_without_words_has_its_name() -> None:
    assert error_line(StokerError()) == "stoker: StokerError"
