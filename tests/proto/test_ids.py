"""Ids of version 7: their form, their order, their uniqueness."""

import uuid
from random import Random

from stoker.proto.ids import IdMaker, uuid7
from stoker.proto.rules import is_name

MS = 1_000_000


def test_an_id_is_a_canonical_uuid_of_version_7() -> None:
    text = uuid7()
    parsed = uuid.UUID(text)
    assert (str(parsed), parsed.version, parsed.variant) == (text, 7, uuid.RFC_4122)
    assert is_name(text)


def test_an_id_begins_with_the_time_in_milliseconds() -> None:
    make = IdMaker(now_ns=lambda: 0x0123_4567_89AB * MS, random=lambda size: b"\xff" * size)
    assert make() == "01234567-89ab-77ff-bfff-ffffffffffff"


def test_ids_grow_while_the_clock_stands_still() -> None:
    make = IdMaker(now_ns=lambda: 5 * MS)
    made = [make() for _ in range(1000)]
    assert made == sorted(set(made))


def test_ids_grow_when_the_clock_goes_back() -> None:
    times = iter([9 * MS, 8 * MS, 0, 10 * MS])
    make = IdMaker(now_ns=lambda: next(times))
    made = [make() for _ in range(4)]
    assert made == sorted(set(made))


def test_ids_differ_even_without_any_randomness() -> None:
    make = IdMaker(now_ns=lambda: 0, random=lambda size: bytes(size))
    assert make() != make()


def test_two_makers_in_the_same_state_part_company() -> None:
    random = Random(1)
    one, other = (IdMaker(now_ns=lambda: 7 * MS, random=random.randbytes) for _ in range(2))
    assert {one(), one()}.isdisjoint({other(), other()})
