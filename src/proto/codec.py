"""msgpack with strict limits: bytes to one list of plain values and back.

Every frame is decoded by one `unpackb` call of its own: a decoder that met an error is never used
again. Extension types, non-text map keys, duplicate keys, trailing bytes, invalid UTF-8 and lists
longer than the op allows are refused. What a field may hold is checked one level up, by `rules.py`;
nothing there takes a float, so NaN and infinities have no way in.

`peek_op` reads the number of the op from the first bytes, so that the limits of that op hold before
anything is built from the rest.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from . import frames, limits
from .errors import LocalProtocolError, RemoteProtocolError

_pack: Callable[[object], bytes] = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def encode(values: Sequence[object]) -> bytes:
    """One frame, header included. LocalProtocolError if a value cannot travel or it is too long."""
    try:
        body = _pack(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"not encodable: {error}") from error
    size = len(body)
    if size > limits.FRAME_BYTES_MAX:
        raise LocalProtocolError(f"frame of {size} bytes; the limit is {limits.FRAME_BYTES_MAX}")
    return frames.header(size) + body


def peek_op(body: bytes) -> int:
    """The op number of a frame's body, -1 if it does not begin as a frame should."""
    first = body[0]
    # An array of up to 15, or with a length of two bytes; then a number below 128, which is one byte.
    if first & 0xF0 == 0x90:
        at = 1
    elif first == 0xDC:
        at = 3
    else:
        return -1
    return body[at] if len(body) > at and body[at] < 128 else -1


def decode(
    body: bytes, items_max: int = limits.ANSWER_ITEMS_MAX, containers_max: int = limits.FRAME_BYTES_MAX
) -> list[Any]:
    """The array in one frame: a number, a request id, fields. RemoteProtocolError(`bad_frame`) if not.

    No list or map in it may have more than `items_max` items, and there may be `containers_max` of
    them. The defaults are for answers: the broker is trusted, and its answers list what it holds.
    """
    try:
        array: Any = _unpack(body, items_max, containers_max)
    except Exception as error:
        # One narrow except clause is not enough: msgpack raises its own classes, ValueError,
        # UnicodeDecodeError, TypeError, RecursionError and more, depending on the damage.
        raise RemoteProtocolError("bad_frame", f"not one msgpack value: {_brief(error)}") from error
    if not is_exactly(array, list) or len(array) < 2:
        raise RemoteProtocolError("bad_frame", "a frame holds one array [op, request id, fields...]")
    values: list[Any] = array
    number, request = values[0], values[1]
    if type(number) is not int or type(request) is not int or not 0 <= request <= limits.INTEGER_MAX:
        raise RemoteProtocolError(
            "bad_frame", f"op and request id are integers, the id from 0 to {limits.INTEGER_MAX}"
        )
    return values


def _unpack(body: bytes, items_max: int, containers_max: int) -> Any:
    size = len(body)
    # Empty lists and maps are one byte here and seventy in memory. A frame with fewer bytes than that
    # cannot hold too many, and is spared the call for each list.
    count = _Count(containers_max) if size > containers_max else None
    return msgpack.unpackb(
        body,
        raw=False,
        strict_map_key=True,
        list_hook=count.seen_list if count else None,
        object_pairs_hook=count.seen_map if count else unique_map,
        ext_hook=_refuse_extension,
        max_array_len=items_max,
        max_map_len=items_max,
        max_ext_len=0,
        max_str_len=size,
        max_bin_len=size,
    )


def _refuse_extension(code: int, data: bytes) -> Any:
    # `max_ext_len` lets one without content pass.
    raise ValueError(f"extension type {code}")


def is_exactly(value: Any, kind: type) -> bool:
    """Of that very type. A function, so that checkers do not narrow to a list or map of unknowns."""
    return type(value) is kind


def unique_map(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """A map of text keys in which none came twice; ValueError if not so. JSON uses it too."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate key in a map")
    # msgpack's own strict mode lets bytes pass beside text.
    for key in result:
        if type(key) is not str:
            raise ValueError("a key of a map is not text")
    return result


class _Count:
    """Lets so many lists and maps pass, and so much in them."""

    __slots__ = ("_items_left", "_left")

    def __init__(self, containers_max: int) -> None:
        self._left = containers_max
        self._items_left = limits.ITEMS_MAX

    def seen_list(self, value: list[Any]) -> list[Any]:
        self._one_less(len(value))
        return value

    def seen_map(self, pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
        self._one_less(len(pairs))
        return unique_map(pairs)

    def _one_less(self, items: int) -> None:
        self._left -= 1
        self._items_left -= items
        if self._left < 0:
            raise ValueError("too many lists and maps in one frame")
        if self._items_left < 0:
            raise ValueError("too many items in the lists and maps of one frame")


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:120]}".removesuffix(": ")
