"""Times and sizes for people."""

import pytest

from stoker.cli.moment import instant, size, span


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0ms"),
        (340, "340ms"),
        (1000, "1s"),
        (1500, "1.5s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (303_000, "5m 3s"),
        (7_800_000, "2h 10m"),
        (86_400_000 * 3 + 3_600_000 * 4 + 59_000, "3d 4h"),
        (-5, "0ms"),
        (None, "-"),
        ("x", "-"),
    ],
)
def test_span_has_two_units_at_most(duration_ms: object, text: str) -> None:
    assert span(duration_ms) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (2**20, "1 MiB"), (2**50, "1048576 GiB"), (None, "-")],
)
def test_size_has_a_unit(size_bytes: object, text: str) -> None:
    assert size(size_bytes) == text


def test_instant_has_the_offset_of_its_zone() -> None:
    assert instant(1_700_000_000_000).startswith("2023-11-1")
    assert instant(1_700_000_000_000)[-5] in "+-"


@pytest.mark.parametrize("never", [0, None, "x"])
def test_never_is_empty(never: object) -> None:
    assert instant(never) == ""


def test_instant_beyond_the_calendar_is_still_shown() -> None:
    assert instant(2**80) == f"{2**80} ms since 1970"
