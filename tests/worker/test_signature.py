"""Whether arguments fit: exactly when the call itself would take them, and nothing runs."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.worker.signature import fit_of

RAN: list[int] = []


def nothing() -> None:
    RAN.append(1)


def plain(a: int, b: int = 2) -> None:
    RAN.append(1)


def by_position(a: int, b: int = 2, /, c: int = 3) -> None:
    RAN.append(1)


def by_name(a: int, *, b: int, c: int = 3) -> None:
    RAN.append(1)


def many(a: int, *args: int, b: int = 2, **kwargs: int) -> None:
    RAN.append(1)


def named(a: int, **kwargs: int) -> None:
    RAN.append(1)


def listed(*args: int) -> None:
    RAN.append(1)


def outer(count: int) -> Callable[..., None]:
    def closure(a: int) -> None:
        RAN.append(count)

    return closure


class Method:
    def method(self, a: int) -> None:
        RAN.append(1)

    def __call__(self, a: int, b: int) -> None:
        RAN.append(1)


CALLABLES: list[Callable[..., Any]] = [
    *(nothing, plain, by_position, by_name, many, named, listed, outer(3)),
    *(Method().method, Method(), functools.partial(plain, 1)),
]


@pytest.mark.parametrize("function", CALLABLES)
@given(args=st.lists(st.just(1), max_size=4), names=st.sets(st.sampled_from("abcd")))
def test_arguments_fit_when_the_call_would_take_them(
    function: Callable[..., Any], args: list[int], names: set[str]
) -> None:
    kwargs = dict.fromkeys(names, 1)

    def takes(call: Callable[..., Any]) -> bool:
        try:
            call(*args, **kwargs)
        except TypeError:
            return False
        return True

    expected = takes(function)
    RAN.clear()
    assert takes(fit_of(function)) == expected
    assert RAN == []


def test_words_are_those_of_python_for_the_function_itself() -> None:
    call: Any = plain
    with pytest.raises(TypeError) as of_call:
        call()
    with pytest.raises(TypeError) as of_fit:
        fit_of(plain)()
    assert str(of_fit.value) == str(of_call.value)


def injecting(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        function("session", *args, **kwargs)

    return wrapper


def test_decorator_that_adds_an_argument_decides_what_fits() -> None:
    @injecting
    def handler(session: str, a: int) -> None: ...

    fit_of(handler)(1)


def test_callable_that_does_not_say_what_it_takes_takes_everything() -> None:
    class Silent:
        __signature__ = "none of your business"

        def __call__(self) -> None: ...

    fit_of(Silent())(1, 2, three=3)


def test_defaults_are_looked_at_not_called() -> None:
    class Loud:
        def __repr__(self) -> str:
            raise AssertionError

    def handler(a: int, b: Any = Loud(), *, c: Any = Loud()) -> None: ...  # noqa: B008 - it is about such a default

    fit_of(handler)(1)
