"""Values: what travels comes back as it was; what cannot is refused by its path."""

import enum
import math
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.client.values import (
    DEPTH_MAX,
    ValueRefusedError,
    decode_value,
    encode_arguments,
    encode_value,
)
from stoker.proto import limits
from stoker.proto.errors import PayloadTooLargeError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=30)


class Colour(enum.IntEnum):
    RED = 1


CANNOT_TRAVEL: list[tuple[list[Any], dict[str, Any], str]] = [
    ([0, {"items": [1, 2, 3, {4}]}], {}, "args[1].items[3]: set"),
    ([], {"a": {"b c": object()}}, "kwargs.a['b c']: object"),
    ([2**64], {}, "args[0]: an integer beyond 64 bit"),
    ([-(2**63) - 1], {}, "args[0]: an integer beyond 64 bit"),
    (["\ud800"], {}, "args[0]: a lone surrogate"),
    ([{"\ud800": 1}], {}, "args[0]['\\ud800']: a lone surrogate"),
    ([{1: 2}], {}, "args[0]: a key of type int"),
    ([Colour.RED], {}, "Colour cannot travel"),
    ([OrderedDict(a=1)], {}, "args[0]: collections.OrderedDict cannot travel"),
    ([bytearray(b"x")], {}, "args[0]: bytearray cannot travel"),
]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@given(args=st.lists(VALUES), kwargs=st.dictionaries(KEYS, VALUES))
def test_plain_values_come_back_as_they_were(args: list[Any], kwargs: dict[str, Any]) -> None:
    assert decode_value(encode_arguments(args, kwargs)) == [args, kwargs]


def test_tuple_comes_back_as_a_list() -> None:
    assert decode_value(encode_arguments(((1, 2),), None)) == [[[1, 2]], {}]


def test_nan_travels() -> None:
    assert math.isnan(decode_value(encode_value(math.nan)))


@pytest.mark.parametrize(
    ("args", "kwargs", "path"),
    CANNOT_TRAVEL,
)
def test_what_cannot_travel_is_refused_by_its_path(
    args: list[Any], kwargs: dict[str, Any], path: str
) -> None:
    with pytest.raises(ValueRefusedError) as refused:
        encode_arguments(args, kwargs)
    assert path in str(refused.value)


def test_nesting_up_to_the_limit_travels() -> None:
    value = nested(DEPTH_MAX)
    assert decode_value(encode_arguments([value], None)) == [[value], {}]


def test_nesting_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValueRefusedError, match=f"deeper than {DEPTH_MAX}"):
        encode_arguments([nested(DEPTH_MAX + 1)], None)


def test_list_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ValueRefusedError, match="deeper"):
        encode_arguments([value], None)


def test_text_in_place_of_arguments_is_refused() -> None:
    with pytest.raises(ValueRefusedError, match="args must be a list or a tuple, not str"):
        encode_arguments("abc", None)


def test_list_in_place_of_keyword_arguments_is_refused() -> None:
    keywords: Any = [1]
    with pytest.raises(ValueRefusedError, match="kwargs must be a dict, not list"):
        encode_arguments([], keywords)


def test_payload_over_the_limit_names_size_and_limit() -> None:
    with pytest.raises(PayloadTooLargeError, match=str(limits.PAYLOAD_BYTES_MAX)):
        encode_arguments([b"x" * limits.PAYLOAD_BYTES_MAX], None)


def test_value_over_its_own_limit_is_named() -> None:
    with pytest.raises(PayloadTooLargeError, match="result is 12 bytes; the limit is 10"):
        encode_value(b"x" * 10, bytes_max=10)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01\x02", b"\xd4\x01\x00", b"\x91" * 5000])
def test_bytes_that_are_not_one_value_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="not one msgpack value"):
        decode_value(data)
