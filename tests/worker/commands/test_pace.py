"""How fast programs are read, all of a worker together."""

import pytest

from stoker.worker.commands import pace
from stoker.worker.commands.pace import BURST_BYTES, BYTES_A_SECOND, NAP_S_MIN, Pace

CHUNK = 256 * 1024


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    return clock


def read(clock: Clock, paced: Pace, count: int) -> None:
    """So many bytes as fast as they may be read."""
    while count > 0:
        clock.now_s += paced.nap_s(CHUNK)
        count -= CHUNK


def test_who_was_quiet_is_read_at_once(clock: Clock) -> None:
    paced = Pace()
    assert sum(paced.nap_s(CHUNK) for _ in range(BURST_BYTES // CHUNK)) == 0


def test_flood_is_read_at_a_pace(clock: Clock) -> None:
    paced, begun_s = Pace(), clock.now_s
    read(clock, paced, 4 * BYTES_A_SECOND)
    taken_s = clock.now_s - begun_s + BURST_BYTES / BYTES_A_SECOND
    assert taken_s == pytest.approx(4, rel=0.01)


def test_what_is_below_the_pace_never_waits(clock: Clock) -> None:
    paced = Pace()
    for _ in range(1000):
        assert paced.nap_s(CHUNK) == 0
        clock.now_s += 1.1 * CHUNK / BYTES_A_SECOND


def test_nobody_waits_for_less_than_is_worth_its_trouble(clock: Clock) -> None:
    paced = Pace()
    naps = {paced.nap_s(CHUNK) for _ in range(100)}
    assert min(naps - {0.0}) >= NAP_S_MIN
