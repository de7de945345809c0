"""The asynchronous client has the words of the blocking one; what it does is in `tests/conformance`."""

import inspect
from typing import Any

import pytest

from stoker import AsyncClient, AsyncJobHandle, Client, JobHandle
from stoker.proto.address import AddressError

PAIRS = [(Client, AsyncClient), (JobHandle, AsyncJobHandle)]
RENAMED = {"close": "aclose"}
"""What a program with an event loop expects to be called otherwise."""


def words(kind: type[Any]) -> dict[str, list[tuple[str, Any, Any]]]:
    """Public methods with their parameters."""
    found = {
        name: list(inspect.signature(member).parameters.values())
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and (not name.startswith("_") or name == "__init__")
    }
    return {
        RENAMED.get(name, name): [(each.name, each.kind, each.default) for each in parameters]
        for name, parameters in found.items()
    }


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_words_and_parameters_are_those_of_the_blocking_twin(
    blocking: type[Any], asynchronous: type[Any]
) -> None:
    assert words(blocking) == words(asynchronous)


@pytest.mark.parametrize("kind", [kind for _, kind in PAIRS])
def test_every_word_is_awaited_iterated_or_entered(kind: type[Any]) -> None:
    plain = [
        name
        for name, member in vars(kind).items()
        if inspect.isfunction(member)
        and not name.startswith("_")
        and not inspect.iscoroutinefunction(member)
        and not inspect.isasyncgenfunction(member)
    ]
    # That one gives something for `async with`, and nothing is sent before.
    assert set(plain) <= {"follow"}


def test_path_over_the_limit_is_refused_when_the_client_is_made() -> None:
    with pytest.raises(AddressError, match="107"):
        AsyncClient("/tmp/" + "x" * 103)


def test_socket_is_found_as_the_blocking_client_finds_it() -> None:
    assert AsyncClient().socket == Client().socket


def test_handle_shows_its_id() -> None:
    assert repr(AsyncJobHandle(AsyncClient("/s"), "order-1", 1)) == "<AsyncJobHandle order-1>"
