"""Datetimes: the same instant and offset come back, in a form that any language can write."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.client.values import ValueRefusedError, decode_value, encode_arguments, encode_value

OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
INSTANTS = st.datetimes(timezones=OFFSETS)

AT = datetime(2026, 7, 20, 10, 15, 0, 123456, timezone(timedelta(hours=2)))
SPELLED = {"$datetime": "2026-07-20T10:15:00.123456+02:00"}


class Own(datetime):
    pass


@given(INSTANTS)
def test_instant_and_offset_come_back(value: datetime) -> None:
    back = decode_value(encode_value({"at": [value]}))["at"][0]
    assert (back, back.utcoffset()) == (value, value.utcoffset())


def test_datetime_travels_as_a_map_that_any_encoder_can_write() -> None:
    assert msgpack.unpackb(encode_value((1, AT))) == [1, SPELLED]
    assert decode_value(msgpack.packb(SPELLED)) == AT


def test_named_zone_comes_back_as_its_offset() -> None:
    value = datetime(2026, 7, 20, 10, 15, tzinfo=ZoneInfo("Europe/Berlin"))
    back = decode_value(encode_value(value))
    assert back == value
    assert back.tzinfo == timezone(timedelta(hours=2))


def test_offset_of_odd_seconds_is_sent_in_utc_because_others_cannot_spell_it() -> None:
    value = datetime(1880, 1, 1, tzinfo=timezone(timedelta(seconds=3208)))
    back = decode_value(encode_value(value))
    assert back == value
    assert back.tzinfo == UTC


@pytest.mark.parametrize(
    "text",
    ["2026-07-20T08:15:00.123456Z", "2026-07-20T08:15:00.123456789Z", "2026-07-20 10:15:00.123456+02:00"],
)
def test_every_usual_spelling_of_an_instant_is_read(text: str) -> None:
    assert decode_value(msgpack.packb({"$datetime": text})) == AT


@pytest.mark.parametrize(
    ("spelled", "why"),
    [
        (5, "holds no text"),
        ("x" * 100, "holds no text"),
        ("soon", "is not like"),
        ("2026-07-20", "lacks its offset"),
        ("2026-07-20T10:15:00", "lacks its offset"),
        ("\x1b[2J", r"\\x1b"),
    ],
)
def test_bad_spelling_is_refused_and_not_taken_for_a_map(spelled: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_value(msgpack.packb([{"$datetime": spelled}]))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (datetime(2026, 7, 20), r"args\[0\].at: a datetime without a time zone"),
        (datetime.min.replace(tzinfo=timezone(timedelta(seconds=3601))), "outside of the years"),
        (Own(2026, 7, 20, tzinfo=UTC), "Own cannot travel"),
        (date(2026, 7, 20), "datetime.date cannot travel"),
        (SPELLED, r"args\[0\].at: a dict whose only key is \$datetime"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused_by_its_path(value: Any, why: str) -> None:
    with pytest.raises(ValueRefusedError, match=why):
        encode_arguments([{"at": value}], None)


def test_key_of_an_instant_beside_others_is_a_map_like_any_other() -> None:
    value = {"$datetime": "soon", "place": "here"}
    assert decode_value(encode_value(value)) == value


def test_text_that_names_the_key_stays_text() -> None:
    assert decode_value(encode_value(["$datetime", {"a": "$datetime"}])) == ["$datetime", {"a": "$datetime"}]


def test_refused_datetime_leaves_the_encoder_as_it_was() -> None:
    encode_value([1, AT])
    assert decode_value(encode_value([1, 2])) == [1, 2]
