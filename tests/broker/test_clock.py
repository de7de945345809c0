"""The broker's clocks: whole milliseconds, and never backwards where it must not be."""

import time

from stoker.broker import clock


def test_now_reads_the_three_clocks_in_milliseconds() -> None:
    before = time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000
    now = clock.now()
    after = time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000
    assert before[0] <= now.mono_ms <= after[0]
    assert before[1] <= now.wall_ms <= after[1]
    assert all(type(part) is int for part in now)


def test_boot_clock_counts_suspends_so_it_is_never_behind() -> None:
    now = clock.now()
    assert now.boot_ms >= now.mono_ms


def test_boot_id_is_the_same_within_a_boot() -> None:
    assert clock.boot_id() == clock.boot_id() != ""
