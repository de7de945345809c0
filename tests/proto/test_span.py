"""Durations for people."""

import pytest

from stoker.proto.span import span


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0ms"),
        (340, "340ms"),
        (1000, "1s"),
        (1500, "1.5s"),
        (10_000, "10s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (303_000, "5m 3s"),
        (7_800_000, "2h 10m"),
        (86_400_000 * 3 + 3_600_000 * 4 + 59_000, "3d 4h"),
        (-5, "0ms"),
    ],
)
def test_span_has_two_units_at_most(duration_ms: int, text: str) -> None:
    assert span(duration_ms) == text
