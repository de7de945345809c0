"""Values that travel as arguments and results: msgpack of plain data, checked before it is sent.

What goes in comes out as it was: None, True and False, int (64 bit), float, str, bytes, list, dict
with text keys, and aware datetimes. Two things change: a tuple comes out as a list, and a datetime
with its offset but without the name of its zone (see `instants.py` for how it travels). Everything
else is refused here, in the caller's own stack, by the path to the value: sets, naive datetimes,
enums, other classes and subclasses of the plain ones, integers beyond 64 bit, lone surrogates,
nesting beyond 64. NaN and infinities are floats like any other; who shows them as JSON writes text.

The broker never looks inside. Nothing is ever pickled.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgpack

from ..proto import limits
from ..proto.errors import StokerError, refusal

DEPTH_MAX = 64
"""Containers inside containers, the argument list not counted: far from every recursion limit."""

INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""What msgpack can hold."""

INSTANT_KEY = "$datetime"
"""The one key of the map as which a datetime travels."""

_INSTANT_MARK = INSTANT_KEY.encode()

_pack: Callable[[object], bytes] = msgpack.Packer(use_bin_type=True, autoreset=True).pack
"""One for the process: `packb` makes a new one, with a quarter of a megabyte of buffer, every time."""

_PLAIN = frozenset({type(None), bool, float, bytes})


class ValueRefusedError(StokerError, ValueError):
    """A value that cannot travel. Nothing was sent. The message has the path to it and the limit."""


class _Unfit(Exception):
    """Carries the path upward from the value to the root, so that good values pay nothing for it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[str] = []


def encode_arguments(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> bytes:
    """The payload for a call: msgpack of `[args, kwargs]`. ValueRefusedError, PayloadTooLargeError."""
    if type(args) not in (list, tuple):
        raise ValueRefusedError(f"args must be a list or a tuple, not {_type_name(args)}")
    keywords: Mapping[str, Any] = {} if kwargs is None else kwargs
    if not isinstance(keywords, dict):
        raise ValueRefusedError(f"kwargs must be a dict, not {_type_name(keywords)}")
    _checked("args", args)
    _checked("kwargs", keywords)
    payload = _packed([args, keywords])
    check_payload(payload)
    return payload


def encode_value(value: Any, name: str = "result", *, bytes_max: int = limits.RESULT_BYTES_MAX) -> bytes:
    """msgpack of one value, `name` being what errors call it."""
    _checked(name, value)
    data = _packed(value)
    if len(data) > bytes_max:
        raise refusal("payload_too_large", f"{name} is {len(data)} bytes; the limit is {bytes_max}")
    return data


def check_payload(payload: bytes) -> None:
    """PayloadTooLargeError if it is over the limit, before the broker has to say so."""
    if len(payload) > limits.PAYLOAD_BYTES_MAX:
        raise refusal(
            "payload_too_large",
            f"payload is {len(payload)} bytes; the limit is {limits.PAYLOAD_BYTES_MAX}: "
            "put the data in a file and its path in the job",
        )


def decode_value(data: bytes) -> Any:
    """The value of msgpack bytes; ValueError if they are not exactly one value."""
    try:
        # Dictionaries with other than text keys are a foreign writer's right; reading must not fail.
        return msgpack.unpackb(data, strict_map_key=False, max_ext_len=0, object_hook=_hook(data))
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ValueError(f"not one msgpack value: {error}") from error


def instant_of_map(value: dict[Any, Any]) -> Any:
    """The datetime that a map spells, any other map as it is: a hook for readers of JSON."""
    if INSTANT_KEY not in value:
        return value
    from .instants import from_map

    return from_map(value)


def _hook(data: bytes) -> Callable[[dict[Any, Any]], Any] | None:
    # It costs a call for each map, so it is there only if one of them may be an instant.
    return instant_of_map if _INSTANT_MARK in data else None


def _packed(value: object) -> bytes:
    """msgpack of a checked value."""
    try:
        return _pack(value)
    except TypeError:
        # Of all that is let through, only a datetime is strange to msgpack. Not by its hook for strange
        # values, which would let another thread into the one packer in the middle of this value.
        from .instants import spelled

        return _pack(spelled(value))


def _checked(name: str, value: Any) -> None:
    try:
        _check(value, 0)
    except _Unfit as unfit:
        path = name + "".join(reversed(unfit.path))
        raise ValueRefusedError(f"{path}: {unfit.why}") from None


def _check(item: object, depth: int) -> None:
    kind, value = type(item), cast(Any, item)
    if kind is str:
        if not value.isascii():
            _check_text(value)
    elif kind is int:
        if not INT_MIN <= value <= INT_MAX:
            raise _Unfit("an integer beyond 64 bit; send it as text")
    elif kind is dict:
        _check_dict(value, depth + 1)
    elif kind is list or kind is tuple:
        _check_list(value, depth + 1)
    elif kind not in _PLAIN:
        _check_other(value)


def _check_other(value: object) -> None:
    # Whoever has a datetime has loaded its module; everybody else need not.
    from .instants import is_instant, refusal_of

    if not is_instant(value):
        name = _type_name(value)
        raise _Unfit(f"{name} cannot travel; None bool int float str bytes list dict datetime can")
    if why := refusal_of(cast(Any, value)):
        raise _Unfit(why)


def _check_list(value: Sequence[Any], depth: int) -> None:
    if depth > DEPTH_MAX + 1:
        raise _Unfit(f"nested deeper than {DEPTH_MAX}")
    index = 0
    try:
        for index in range(len(value)):
            _check(value[index], depth)
    except _Unfit as unfit:
        unfit.path.append(f"[{index}]")
        raise


def _check_dict(value: Mapping[Any, Any], depth: int) -> None:
    if depth > DEPTH_MAX + 1:
        raise _Unfit(f"nested deeper than {DEPTH_MAX}")
    if len(value) == 1 and INSTANT_KEY in value:
        raise _Unfit(f"a dict whose only key is {INSTANT_KEY} is how a datetime travels; pass the datetime")
    key: Any = None
    try:
        for key, item in value.items():
            if type(key) is not str:
                raise _Unfit(f"a key of type {_type_name(key)}; keys must be text")
            _check_text(key)
            _check(item, depth)
    except _Unfit as unfit:
        if type(key) is str:
            unfit.path.append(f".{key}" if key.isidentifier() else f"[{key!a}]")
        raise


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _Unfit(f"a lone surrogate at character {error.start}; it is not text") from None


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
