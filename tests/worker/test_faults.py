"""`retry_on` and `permanent_on`: which exceptions of a handler end its job."""

from typing import Any

import pytest

from stoker.worker.faults import LENIENT, faults_of


class Own(Exception):
    pass


class Younger(Own, LookupError):
    pass


class Deceiver(type):
    def __instancecheck__(cls, instance: object) -> bool:
        raise RuntimeError

    def __subclasscheck__(cls, subclass: type) -> bool:
        raise RuntimeError

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError

    def __hash__(cls) -> int:
        raise RuntimeError


class Deceiving(Exception, metaclass=Deceiver):
    pass


@pytest.mark.parametrize(
    ("options", "error", "permanent"),
    [
        ({}, Own(), False),
        ({"retry_on": Own}, Own(), False),
        ({"retry_on": Own}, Younger(), False),
        ({"retry_on": Own}, ValueError(), True),
        ({"retry_on": ()}, Own(), True),
        ({"permanent_on": Own}, Younger(), True),
        ({"permanent_on": Younger}, Own(), False),
        ({"permanent_on": (ValueError, LookupError)}, Younger(), True),
        ({"retry_on": Exception, "permanent_on": LookupError}, Younger(), True),
        ({"retry_on": Own}, MemoryError(), False),
        ({"permanent_on": MemoryError}, MemoryError(), True),
        ({"retry_on": OSError}, KeyboardInterrupt(), True),
        ({"retry_on": Own}, ExceptionGroup("two", [Own()]), True),
    ],
)
def test_classes_and_their_subclasses_decide(
    options: dict[str, Any], error: BaseException, permanent: bool
) -> None:
    assert faults_of("kind", options).is_permanent(error) is permanent


def test_metaclass_of_an_exception_has_no_say() -> None:
    assert faults_of("kind", {"retry_on": ValueError, "permanent_on": OSError}).is_permanent(Deceiving())
    assert LENIENT.is_permanent(Deceiving()) is False


@pytest.mark.parametrize("value", ["ValueError", 5, int, [ValueError], (ValueError, None), ValueError()])
@pytest.mark.parametrize("option", ["retry_on", "permanent_on"])
def test_anything_but_exception_classes_is_refused_by_the_name_of_the_option(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"kind: {option} takes an exception class or a tuple of them"):
        faults_of("kind", {option: value})
