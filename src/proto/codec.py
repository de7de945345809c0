"""msgpack with strict limits: bytes to one list of plain values and back.

Every frame is decoded by one `unpackb` call of its own: a decoder that met an error is never used
again. Extension types, non-text map keys, duplicate keys, trailing bytes, NaN and infinities are
refused. What a field may hold is checked one level up, in `ops.py`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgpack

from . import frames, limits
from .errors import LocalProtocolError, RemoteProtocolError

_packer = msgpack.Packer(use_bin_type=True, autoreset=True)
_pack = _packer.pack


def _unique_map(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    items = list(pairs)
    result = dict(items)
    if len(result) != len(items):
        raise ValueError("duplicate key in a map")
    return result


def encode(values: Sequence[object]) -> bytes:
    """One frame, header included. LocalProtocolError if a value cannot travel or it is too long."""
    try:
        body: bytes = _pack(values)
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError) as error:
        raise LocalProtocolError(f"not encodable: {error}") from error
    if len(body) > limits.FRAME_BYTES_MAX:
        raise LocalProtocolError(f"frame of {len(body)} bytes; the limit is {limits.FRAME_BYTES_MAX}")
    return frames.header(len(body)) + body


def decode(body: bytes) -> list[Any]:
    """The array in one frame. RemoteProtocolError(`bad_frame`) for anything else."""
    try:
        value: Any = msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            object_pairs_hook=_unique_map,
            max_array_len=limits.LIST_ITEMS_MAX,
            max_map_len=limits.LIST_ITEMS_MAX,
            max_ext_len=0,
            max_str_len=len(body),
            max_bin_len=len(body),
        )
    except Exception as error:
        # One narrow except clause is not enough: msgpack raises its own classes, ValueError,
        # UnicodeDecodeError, TypeError, RecursionError and more, depending on the damage.
        raise RemoteProtocolError("bad_frame", f"not one msgpack value: {_brief(error)}") from error
    if not _is_request(value):
        raise RemoteProtocolError("bad_frame", "a frame holds one array [op, request id, fields...]")
    array: list[Any] = value
    return array


def _is_request(value: Any) -> bool:
    return type(value) is list and len(value) >= 2


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:120]}"
