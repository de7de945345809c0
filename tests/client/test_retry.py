"""Patience: bounded, in growing steps, and not begun before it is needed."""

import time

from support.waiting import wait_until

from stoker.client.retry import PAUSE_S_FIRST, PAUSE_S_MAX, Patience


def test_no_patience_never_pauses() -> None:
    assert Patience(0).next_pause() is None


def test_pauses_grow_to_a_limit() -> None:
    patience = Patience(60)
    pauses = [patience.next_pause() for _ in range(8)]
    assert pauses[:2] == [PAUSE_S_FIRST, 2 * PAUSE_S_FIRST]
    assert pauses[-1] == PAUSE_S_MAX


def test_pause_never_exceeds_what_is_left() -> None:
    pause_s = Patience(PAUSE_S_FIRST / 2).next_pause()
    assert pause_s is not None and pause_s < PAUSE_S_FIRST


def test_patience_ends_after_its_time() -> None:
    patience = Patience(0.05)
    started = time.monotonic()
    wait_until(lambda: patience.next_pause() is None, "the patience ends")
    assert time.monotonic() - started >= 0.05
