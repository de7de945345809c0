"""Code words and the exceptions that stand for them."""

import pytest

from stoker.proto.errors import REFUSALS, OutcomeUnknown, RefusedError, refusal

CLASSES = RefusedError.__subclasses__()


def class_name(code: str) -> str:
    """`job_not_found` -> `JobNotFoundError`."""
    return "".join(part.capitalize() for part in code.split("_")) + "Error"


@pytest.mark.parametrize("cls", CLASSES)
def test_a_class_is_named_after_its_code(cls: type[RefusedError]) -> None:
    assert cls.code in REFUSALS
    assert class_name(cls.code) == cls.__name__


@pytest.mark.parametrize("cls", CLASSES)
def test_a_code_with_a_class_becomes_that_class(cls: type[RefusedError]) -> None:
    error = refusal(cls.code, "no", {"a": 1})
    assert type(error) is cls
    assert (error.code, error.message, str(error), error.detail) == (cls.code, "no", "no", {"a": 1})


def test_a_code_without_a_class_keeps_its_word() -> None:
    error = refusal("code_of_a_later_release", "no")
    assert type(error) is RefusedError
    assert (error.code, error.detail) == ("code_of_a_later_release", {})
    assert RefusedError.code == "refused"


def test_an_unknown_outcome_names_the_job() -> None:
    assert OutcomeUnknown("lost", job_id="a").job_id == "a"
