"""Durations and sizes as text: what is understood, what is refused, and the way back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.config.durations import format_duration, format_size, parse_duration, parse_size
from stoker.proto import limits


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000), ("0.5s", 500)],
)
def test_each_unit_is_understood(text: str, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize(
    "text", ["", "30", "s", "-1s", "1 s", "1S", "1w", "1s ", "nan", "1e3s", "٣s", "0.5ms"]
)
def test_what_is_no_duration_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=repr(text)):
        parse_duration(text)


def test_duration_beyond_the_limit_is_refused() -> None:
    assert parse_duration("3650d") == limits.DURATION_MS_MAX
    with pytest.raises(ValueError, match="longer than the limit"):
        parse_duration("3651d")


@pytest.mark.parametrize(("text", "size"), [("512", 512), ("1B", 1), ("64KiB", 65536), ("2GiB", 2**31)])
def test_sizes_are_bytes_or_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "1kB", "1K", "1.5MiB", "-1", "999999999999999GiB"])
def test_what_is_no_size_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=repr(text)):
        parse_size(text)


@given(st.integers(0, limits.DURATION_MS_MAX))
def test_formatted_duration_reads_back(duration_ms: int) -> None:
    assert parse_duration(format_duration(duration_ms)) == duration_ms


@given(st.integers(0, limits.GIB * 4))
def test_formatted_size_reads_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_largest_exact_unit_is_chosen() -> None:
    assert (format_duration(90_000), format_duration(3_600_000), format_size(1500)) == ("90s", "1h", "1500B")
