"""What an enqueue's payload means to a Python handler: its arguments.

Either msgpack of `[args, kwargs]`, as the client library writes it, or JSON text of a list (args) or
an object (kwargs), as a person or a script writes it. The first byte tells: `[` and `{` would be lone
small integers in msgpack. No bytes at all mean no arguments. Nothing is ever unpickled. A datetime is
`{"$datetime": "..."}` in both.
"""

import json
from typing import Any, NoReturn

from ..client.values import decode_value, instant_of_map
from .signature import Fit

_JSON_STARTS = (b"[", b"{")


class PayloadError(ValueError):
    """The payload is not arguments. No retry can mend that."""


def decode_arguments(payload: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments; PayloadError for anything else."""
    if not payload:
        return [], {}
    if payload.startswith(_JSON_STARTS):
        return _from_json(payload)
    try:
        value = decode_value(payload)
    except ValueError as error:
        raise PayloadError(f"the payload is neither JSON nor msgpack: {error}") from error
    if _is(value, list) and len(value) == 2:
        return _checked(*value)
    raise PayloadError("the payload is msgpack, but not of [args, kwargs]")


def fitting_arguments(payload: bytes, fits: Fit) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a payload for a handler that takes what `fits` takes; PayloadError if they do not fit.

    So a TypeError of the call that follows is one from inside of the handler.
    """
    args, kwargs = decode_arguments(payload)
    try:
        fits(*args, **kwargs)
    except TypeError as error:
        raise PayloadError(f"the arguments do not fit: {error}") from error
    return args, kwargs


def _from_json(payload: bytes) -> tuple[list[Any], dict[str, Any]]:
    try:
        value = json.loads(payload, parse_constant=_refuse_constant, object_hook=instant_of_map)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"the payload begins like JSON and cannot be read: {error}") from error
    return _checked(value, {}) if _is(value, list) else _checked([], value)


def _checked(args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    if not _is(args, list) or not _is(kwargs, dict):
        raise PayloadError("the payload must hold a list of args and a map of kwargs")
    return args, kwargs


def _is(value: Any, kind: type) -> bool:
    """A function, so that checkers do not narrow to a list of unknowns."""
    return type(value) is kind


def _refuse_constant(name: str) -> NoReturn:
    # json reads NaN and Infinity, which are no JSON.
    raise ValueError(f"{name} is no JSON")
