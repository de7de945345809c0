"""When the loop may commit a small batch itself."""

from stoker.broker.pace import SHORT_IN_A_ROW, SHORT_S, Pace


def pace_after(*took_s: float) -> Pace:
    pace = Pace()
    for each_s in took_s:
        pace.note(each_s)
    return pace


def test_disk_that_nobody_has_tried_is_not_called_fast() -> None:
    assert not pace_after().is_fast
    assert not pace_after(*[0.0] * (SHORT_IN_A_ROW - 1)).is_fast


def test_enough_short_ones_in_a_row_make_it_fast() -> None:
    assert pace_after(*[SHORT_S] * SHORT_IN_A_ROW).is_fast


def test_one_that_took_long_ends_it_until_enough_short_ones_follow() -> None:
    pace = pace_after(*[0.0] * SHORT_IN_A_ROW, SHORT_S * 1.01)
    assert not pace.is_fast
    for _ in range(SHORT_IN_A_ROW):
        assert not pace.is_fast
        pace.note(0.0)
    assert pace.is_fast
