"""When a program is started again, and when never."""

import pytest

from stoker.cli.restarts import HEALTHY_S, PAUSE_S_MAX, Restarts, described
from stoker.config.exits import Exit


def test_first_end_is_followed_by_a_start_at_once() -> None:
    assert Restarts().pause_after(-9, ran_s=5) == 0


def test_pauses_double_up_to_a_cap() -> None:
    restarts = Restarts()
    pauses = [restarts.pause_after(Exit.FAILURE, ran_s=1) for _ in range(10)]
    assert pauses == [0, 0.5, 1, 2, 4, 8, 16, PAUSE_S_MAX, PAUSE_S_MAX, PAUSE_S_MAX]


def test_healthy_run_starts_the_count_anew() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.pause_after(Exit.STORAGE, ran_s=1)
    assert restarts.pause_after(Exit.STORAGE, ran_s=HEALTHY_S) == 0
    assert restarts.pause_after(Exit.STORAGE, ran_s=1) == 0.5


@pytest.mark.parametrize(
    "code",
    [Exit.DATA_REFUSED, Exit.OWNED, Exit.CANNOT_CREATE, Exit.CONFIG, Exit.USAGE],
    ids=lambda code: code.name,
)
def test_refusal_is_never_restarted(code: Exit) -> None:
    restarts = Restarts()
    assert restarts.pause_after(code, ran_s=1) is None
    assert restarts.pause_after(code, ran_s=HEALTHY_S) is None


def test_pool_that_never_came_up_is_not_restarted() -> None:
    assert Restarts().pause_after(Exit.UNAVAILABLE, ran_s=1) is None


def test_pool_that_came_up_once_is_restarted() -> None:
    restarts = Restarts()
    restarts.pause_after(-9, ran_s=100)
    assert restarts.pause_after(Exit.UNAVAILABLE, ran_s=1) is not None


@pytest.mark.parametrize("code", [Exit.OK, Exit.STORAGE, -15])
def test_any_other_end_is_restarted(code: int) -> None:
    assert Restarts().pause_after(code, ran_s=1) is not None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "was killed by SIGKILL"),
        (-200, "was killed by signal 200"),
        (74, "ended with exit code 74 (STORAGE)"),
        (99, "ended with exit code 99"),
    ],
)
def test_end_in_words(code: int, words: str) -> None:
    assert described(code) == words
