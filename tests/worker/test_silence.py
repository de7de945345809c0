"""Who is ended for silence: whoever is overdue at two looks in a row, once."""

from stoker.worker.silence import Silence

A, B = ("nonce-w1", (1, 7)), ("nonce-w2", (1, 8))


def test_first_look_ends_nobody() -> None:
    silence = Silence()
    assert silence.look([A]) == []
    assert silence.look([A, B]) == [A]
    assert silence.look([B]) == [B]


def test_one_that_has_beaten_in_between_is_left_alone() -> None:
    silence = Silence()
    assert [silence.look([A]), silence.look([]), silence.look([A])] == [[], [], []]


def test_attempt_is_ended_once_however_long_it_takes() -> None:
    silence = Silence()
    assert [silence.look([A]) for _ in range(4)] == [[], [A], [], []]


def test_next_attempt_of_the_same_worker_has_its_own_time() -> None:
    silence = Silence()
    later = ("nonce-w1", (1, 9))
    assert [silence.look([A]), silence.look([A]), silence.look([later]), silence.look([later])] == [
        [],
        [A],
        [],
        [later],
    ]
