"""Times and sizes for people."""

import pytest

from stoker.cli.moment import instant, size, span


@pytest.mark.parametrize(
    ("duration_ms", "text"), [(0, "0ms"), (1500, "1.5s"), (90_000.0, "1m 30s"), (None, "-"), ("x", "-")]
)
def test_span_is_for_what_is_a_number(duration_ms: object, text: str) -> None:
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
