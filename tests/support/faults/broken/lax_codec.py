"""Decoders that forget one duty each, to show that the hostile frames would find that out."""

from typing import Any

import msgpack

from stoker.proto import codec
from stoker.proto.errors import RemoteProtocolError
from stoker.proto.limits import CONTAINERS_MAX, LIST_ITEMS_MAX

_decode = codec.decode
_hoard: list[bytes] = []

HOARDED_BYTES = 8192


def without_limits(body: bytes, items_max: int = 0, containers_max: int = 0) -> list[Any]:
    """Takes lists of any length, and any number of them."""
    return _decode(body)


def without_duplicates(body: bytes, items_max: int = LIST_ITEMS_MAX, containers_max: int = 0) -> list[Any]:
    """Lets the last of two keys win, and any key pass, as msgpack does when it is not told otherwise."""
    try:
        array: Any = msgpack.unpackb(body, strict_map_key=False, max_array_len=items_max)
    except Exception as error:
        raise RemoteProtocolError("bad_frame", "not msgpack") from error
    return array if codec.is_exactly(array, list) and len(array) > 1 else _decode(body)


def that_raises(
    body: bytes, items_max: int = LIST_ITEMS_MAX, containers_max: int = CONTAINERS_MAX
) -> list[Any]:
    """Catches what is documented, and not what else a decoder may raise."""
    try:
        return _decode(body, items_max, containers_max)
    except RemoteProtocolError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            raise error.__cause__ from None
        raise


def that_hoards(
    body: bytes, items_max: int = LIST_ITEMS_MAX, containers_max: int = CONTAINERS_MAX
) -> list[Any]:
    """Keeps something of every frame."""
    # Not zeros: pages of those may never be touched, and then take no memory.
    _hoard.append(b"x" * HOARDED_BYTES)
    return _decode(body, items_max, containers_max)


def forget() -> None:
    """Give back what was hoarded."""
    _hoard.clear()
