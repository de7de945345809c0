"""Each rule with values it takes and values it refuses."""

from typing import Any

import pytest
from support.peers import BOOT_ID, IDENTITY, TICKET

from stoker.proto import limits, rules
from stoker.proto.rules import Rule

NAN = float("nan")

ACCEPTED: list[tuple[Rule, Any]] = [
    (rules.NAME, "a"),
    (rules.NAME, "A-z.0_9:x" * 14),
    (rules.FLAG, True),
    (rules.COUNT, 0),
    (rules.COUNT, 2**53),
    (rules.PRIORITY, limits.PRIORITY_MIN),
    (rules.text(4), "éé"),
    (rules.text(2), "é"),
    (rules.data(2), b"ab"),
    (rules.word("a", "b"), "b"),
    (rules.maybe(rules.COUNT), None),
    (rules.maybe(rules.COUNT), 3),
    (rules.listing(rules.COUNT, 2), [1, 2]),
    (rules.TOKEN, [1, 2]),
    (rules.HELD, [1, 2, "unstarted"]),
    (rules.NONCE, "12345678"),
    (rules.IDENTITY, IDENTITY),
    (rules.IDENTITY_OR_EMPTY, []),
    (rules.IDENTITY_OR_EMPTY, IDENTITY),
    (rules.TICKET, TICKET),
    (rules.TICKET_OR_EMPTY, b""),
    (rules.TICKET_OR_EMPTY, TICKET),
    (rules.HEADERS, {}),
    (rules.HEADERS, {"trace-id": "é" * 512}),
    (rules.SNAPSHOT_NAME, "before.upgrade"),
    (rules.KIND, {"kind": "mail"}),
    (rules.KIND, {"kind": "mail", "queue": "q", "lease_ms": 100, "priority": None, "of_later": NAN}),
]

REFUSED: list[tuple[Rule, Any]] = [
    (rules.NAME, ""),
    (rules.NAME, "a" * 129),
    (rules.NAME, "a b"),
    (rules.NAME, "a/b"),
    (rules.NAME, "é"),
    (rules.NAME, "a\n"),
    (rules.NAME, b"a"),
    (rules.NAME, None),
    (rules.FLAG, 1),
    (rules.FLAG, None),
    (rules.COUNT, -1),
    (rules.COUNT, 2**53 + 1),
    (rules.COUNT, True),
    (rules.COUNT, 1.0),
    (rules.COUNT, NAN),
    (rules.COUNT, "1"),
    (rules.PRIORITY, limits.PRIORITY_MAX + 1),
    (rules.LEASE, limits.LEASE_MS_MIN - 1),
    (rules.text(2), "abc"),
    (rules.text(2), "€"),
    (rules.text(9), "\ud800"),
    (rules.text(9), b"a"),
    (rules.data(2), b"abc"),
    (rules.data(2), "ab"),
    (rules.word("a", "b"), "c"),
    (rules.word("a", "b"), []),
    (rules.maybe(rules.COUNT), "x"),
    (rules.listing(rules.COUNT, 2), [1, 2, 3]),
    (rules.listing(rules.COUNT, 2), [1, None]),
    (rules.listing(rules.COUNT, 2), (1, 2)),
    (rules.TOKEN, [1]),
    (rules.TOKEN, [1, -2]),
    (rules.TOKEN, [1, True]),
    (rules.TOKEN, "ab"),
    (rules.HELD, [1, 2]),
    (rules.HELD, [1, 2, "lost"]),
    (rules.HELD, [1, 2, ["running"]]),
    (rules.HELD, [1, "2", "running"]),
    (rules.NONCE, "1234567"),
    (rules.NONCE, "1234567/"),
    (rules.IDENTITY, []),
    (rules.IDENTITY, [BOOT_ID + "/", *IDENTITY[1:]]),
    (rules.IDENTITY, [*IDENTITY[:4], "a/b/c/d/e"]),
    (rules.IDENTITY, [BOOT_ID, "1", 2, 3, "12345678"]),
    (rules.IDENTITY_OR_EMPTY, {}),
    (rules.TICKET, b""),
    (rules.TICKET_OR_EMPTY, TICKET + b"x"),
    (rules.HEADERS, []),
    (rules.HEADERS, {"a": "x" * 1025}),
    (rules.HEADERS, {"a": 1}),
    (rules.HEADERS, {"a b": "x"}),
    (rules.HEADERS, {f"h{i}": "" for i in range(33)}),
    (rules.SNAPSHOT_NAME, ".."),
    (rules.SNAPSHOT_NAME, "a/b"),
    (rules.KIND, []),
    (rules.KIND, {}),
    (rules.KIND, {"kind": "mail", "priority": "high"}),
    (rules.KIND, {"kind": "mail", "attempts_max": 0}),
]


@pytest.mark.parametrize(("rule", "value"), ACCEPTED, ids=lambda v: repr(v)[:30])
def test_a_value_in_range_is_accepted(rule: Rule, value: object) -> None:
    assert rule.accepts(value)


@pytest.mark.parametrize(("rule", "value"), REFUSED, ids=lambda v: repr(v)[:30])
def test_a_value_of_another_type_or_out_of_range_is_refused(rule: Rule, value: object) -> None:
    assert not rule.accepts(value)


def test_only_opaque_data_counts_as_bytes() -> None:
    assert rules.data(5).bytes_max == 5
    assert rules.maybe(rules.data(5)).is_bytes
    assert not rules.text(5).is_bytes
