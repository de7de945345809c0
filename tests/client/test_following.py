"""How much of a job's output was had, and what to ask next."""

import pytest

from stoker.client import following
from stoker.client.caller import Caller
from stoker.client.following import PAUSE_S, Following, Piece, Reading
from stoker.proto.messages import STDERR, STDOUT, Follow, Followed, Message


def reading(*, lossless: bool = False, tied: bool = False) -> Reading:
    return Reading("a", lossless=lossless, tied=tied)


def test_next_request_asks_for_what_comes_after_all_that_was_had() -> None:
    read = reading(lossless=True, tied=True)
    # What it is tied to may turn out to be somebody else's until it is enqueued.
    assert read.request(0, awaited=True) == Follow("a", 0, 0, 0, 0, True, False, True)
    assert read.take(Followed("a", None, 1, [[STDOUT, 0, b"one"], [STDERR, 0, b"er"]])) == [
        Piece(STDOUT, b"one"),
        Piece(STDERR, b"er"),
    ]
    assert read.request(1.5) == Follow("a", 1, 3, 2, 1500, True, True, False)


def test_what_lies_between_is_lost() -> None:
    read = reading()
    read.take(Followed("a", None, 1, [[STDOUT, 0, b"one"]]))
    assert read.take(Followed("a", None, 1, [[STDOUT, 10, b"two"]])) == [Piece(STDOUT, b"two", 7)]


def test_another_attempt_begins_anew() -> None:
    read = reading()
    read.take(Followed("a", None, 1, [[STDOUT, 0, b"one"]]))
    assert read.take(Followed("a", None, 2, [[STDOUT, 0, b"two"]])) == [Piece(STDOUT, b"two")]
    assert read.request(1) == Follow("a", 2, 3, 0, 1000)


def test_answer_of_a_broker_that_knows_no_attempt_changes_nothing() -> None:
    read = reading()
    read.take(Followed("a", None, 1, [[STDOUT, 0, b"one"]]))
    assert read.take(Followed("a", None, 0, [])) == []
    assert read.request(1) == Follow("a", 1, 3, 0, 1000)


def test_end_has_the_state() -> None:
    read = reading()
    assert read.take(Followed("a", "done", 0, [])) == []
    assert read.state == "done"


@pytest.mark.parametrize(("lossless", "pause_s"), [(False, PAUSE_S), (True, 0)])
def test_only_who_needs_all_of_it_asks_without_a_pause(lossless: bool, pause_s: float) -> None:
    assert reading(lossless=lossless).pause_s == pause_s


class Answering(Caller):
    """Says the same each time."""

    def __init__(self) -> None:
        super().__init__("/nowhere", timeout_s=1, retry_s=0)

    def ask(self, message: Message) -> Followed:
        return Followed("a", None, 1, [])


@pytest.mark.parametrize(("lossless", "pauses"), [(False, [PAUSE_S, PAUSE_S]), (True, [0, 0])])
def test_there_is_a_pause_before_all_questions_but_the_first(
    monkeypatch: pytest.MonkeyPatch, lossless: bool, pauses: list[float]
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(following, "sleep", slept.append)
    follower = Following(Answering(), reading(lossless=lossless))
    for _ in range(3):
        assert follower.read() == []
    assert slept == pauses
