"""msgpack both ways, and everything that is refused on the way in."""

import math
from typing import Any

import msgpack
import pytest
from support.peers import nested

from stoker.proto import limits
from stoker.proto.codec import decode, encode, peek_op
from stoker.proto.errors import LocalProtocolError, RemoteProtocolError
from stoker.proto.rules import KIND_POLICY


def refusal_of(body: bytes, items_max: int = limits.LIST_ITEMS_MAX) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(body, items_max, limits.CONTAINERS_MAX)
    assert caught.value.code == "bad_frame"
    return caught.value.message


def packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value))


def test_a_frame_is_its_length_and_one_array() -> None:
    assert encode((14, 1, "a")) == b"\x00\x00\x00\x05\x93\x0e\x01\xa1a"


def test_bytes_text_numbers_lists_and_maps_come_back_as_they_were() -> None:
    values = [10, 7, b"\x00\xff", "é", -5, 2**53, True, None, [1, [2]], {"a": {"b": 1}}]
    assert decode(encode(values)[4:]) == values


@pytest.mark.parametrize("value", [object(), 2**64, "\ud800", {1, 2}, nested(5000)])
def test_what_cannot_travel_is_refused_before_it_is_sent(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        encode((10, 1, value))
    assert encode((2, 1)) == b"\x00\x00\x00\x03\x92\x02\x01"


def test_a_frame_over_the_limit_is_never_made() -> None:
    with pytest.raises(LocalProtocolError, match="the limit is"):
        encode((10, 1, bytes(limits.FRAME_BYTES_MAX)))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"\x92\x0a", "incomplete"),
        (b"\x92\x0a\x01\x00", "ExtraData"),
        (b"\xc1", "FormatError"),
        (packed([10, 1, {1: 2}]), "int is not allowed for map key"),
        (b"\x93\x0a\x01\x82\xa1a\x01\xa1a\x02", "duplicate key"),
        (b"\x93\x0a\x01\x81\xc4\x01a\x01", "not text"),
        (packed([10, 1, msgpack.ExtType(5, b"a")]), "ext"),
        (packed([10, 1, msgpack.Timestamp(1)]), "ext"),
        (packed([10, 1, msgpack.ExtType(5, b"")]), "extension type 5"),
        (packed([10, 1, {"a": [msgpack.ExtType(0, b"")]}]), "extension type 0"),
        (b"\x93\x0a\x01\xc7\x00\xff", "timestamp"),
        (b"\x93\x0a\x01\xa1\xff", "UnicodeDecodeError"),
        (b"\x93\x0a\x01\xdd\xff\xff\xff\xff", "max_array_len"),
        (packed([10, 1, list(range(2000))]), "max_array_len"),
        (b"\x93\x0a\x01" + b"\x91" * 5000, "StackError"),
        (packed({"op": 10}), "one array"),
        (packed("text"), "one array"),
        (packed([]), "one array"),
        (packed([10]), "one array"),
        (packed(["enqueue", 1]), "integers"),
        (packed([True, 1]), "integers"),
        (packed([10, True]), "integers"),
        (packed([10, None]), "integers"),
        (packed([10, -1]), "integers"),
        (packed([10, 2**53 + 1]), "integers"),
        (packed([10, 1.0]), "integers"),
    ],
)
def test_anything_but_one_array_of_plain_values_is_refused(body: bytes, says: str) -> None:
    assert says in refusal_of(body)


def test_request_ids_go_up_to_2_to_the_53() -> None:
    assert decode(packed([10, 2**53])) == [10, 2**53]


def test_a_list_may_have_as_many_items_as_the_op_allows() -> None:
    body = packed([10, 1, [0] * 64])
    assert decode(body, 64)[2] == [0] * 64
    refusal_of(packed([10, 1, [0] * 65]), 64)


@pytest.mark.parametrize("empty", [[], {}])
def test_floods_of_empty_lists_and_maps_are_cut_off(empty: object) -> None:
    crowd = [[[empty] * 60] * 60] * 30
    assert "lists and maps" in refusal_of(packed([10, 1, crowd]))


def test_a_flood_of_items_in_few_lists_is_cut_off() -> None:
    assert "items" in refusal_of(packed([10, 1, [[0] * 1000] * 17]), 1000)


def test_the_largest_list_of_kinds_fits() -> None:
    kinds = [{"kind": "k", **dict.fromkeys(KIND_POLICY, 1)}] * limits.LIST_ITEMS_MAX
    values = [50, 1, kinds, ["0123456789abcdef"] * limits.LIST_ITEMS_MAX]
    assert decode(packed(values), limits.LIST_ITEMS_MAX, limits.CONTAINERS_MAX) == values


def test_a_large_frame_with_few_lists_is_fine() -> None:
    values = [10, 1, bytes(limits.CONTROL_FRAME_BYTES_MAX), [1], {"a": [2]}]
    assert decode(packed(values), 64, limits.CONTAINERS_MAX) == values


def test_an_answer_may_list_all_that_the_broker_holds() -> None:
    rows: list[dict[str, int]] = [{}] * (2 * limits.CONTAINERS_MAX)
    values = [0, 1, rows]
    assert decode(packed(values)) == values


def test_a_nan_arrives_as_the_float_that_no_rule_accepts() -> None:
    assert math.isnan(decode(packed([10, 1, math.nan]))[2])


@pytest.mark.parametrize("count", [2, 15, 16, 40])
def test_the_op_is_known_before_the_rest_is_read(count: int) -> None:
    body = packed([10, 7, *range(count - 2)])
    assert peek_op(body[:5]) == 10


@pytest.mark.parametrize(
    "body", [b"\x92", b"\x92\xcc\x0a\x01", b"\xdc\x00", b"\xdd\x00\x00\x00\x02\x0a", b"\x80", b"a"]
)
def test_what_does_not_begin_as_a_frame_has_no_op(body: bytes) -> None:
    assert peek_op(body) == -1
