"""The clock of ages stands still while no broker is there to see it, and never goes back."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.broker import aging
from stoker.broker.journal import Start


def a_start(epoch: int, boot: str, boot_ms: int) -> Start:
    return Start(epoch, boot, boot_ms, 0)


def test_first_start_is_its_own_clock() -> None:
    assert aging.following(None, a_start(1, "a", 500)).offset_ms == 0


def test_clock_goes_on_within_a_boot() -> None:
    first = aging.following(None, a_start(1, "a", 500))
    second = aging.following(first, a_start(2, "a", 9_000))
    assert aging.shift_ms({1: first, 2: second}, 1, second) == 0


def test_time_between_the_boots_does_not_count() -> None:
    first = aging.following(None, a_start(1, "a", 500))
    last_seen = aging.seen(first, 90_500)
    assert last_seen is not None
    second = aging.following(last_seen, a_start(2, "b", 30))
    # What happened at 90,000 on the old clock was 500 ms ago when the new broker started, at 30.
    assert 90_000 + aging.shift_ms({1: last_seen, 2: second}, 1, second) == 30 - 500


def test_clock_is_written_down_now_and_then_only() -> None:
    anchor = aging.following(None, a_start(1, "a", 500))
    assert aging.seen(anchor, 500 + aging.SEEN_EVERY_MS - 1) is None
    assert aging.seen(anchor, 500 + aging.SEEN_EVERY_MS) is not None


def test_restart_within_a_boot_keeps_what_was_seen() -> None:
    first = aging.seen(aging.following(None, a_start(1, "a", 500)), 90_500)
    assert first is not None
    assert aging.following(first, a_start(2, "a", 80_000)).seen_boot_ms == 90_500


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1))
def test_clock_never_goes_back(starts: list[tuple[bool, int, int]]) -> None:
    anchor, boot, boot_ms, reached = None, 0, 0, 0
    for epoch, (reboots, first_ms, runs_ms) in enumerate(starts, 1):
        boot += reboots
        boot_ms = first_ms if reboots else boot_ms + first_ms
        anchor = aging.following(anchor, a_start(epoch, f"boot-{boot}", boot_ms))
        assert boot_ms + anchor.offset_ms >= reached
        boot_ms += runs_ms
        anchor = aging.seen(anchor, boot_ms) or anchor
        reached = anchor.seen_boot_ms + anchor.offset_ms
