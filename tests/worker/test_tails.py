"""The end of what an attempt says, by token."""

import pytest

from stoker.worker.tails import Tail, Tails

TOKEN = (1, 7)


def said(*texts: bytes, bytes_max: int = 10) -> str | None:
    tails = Tails(bytes_max)
    tails.begin(TOKEN)
    for text in texts:
        tails.add(TOKEN, text)
    return tails.take(TOKEN)


def test_everything_is_kept_while_it_is_short() -> None:
    assert said(b"one ", b"two") == "one two"


def test_only_the_end_is_kept() -> None:
    assert said(*(f"{number:03}".encode() for number in range(1000))) == "6997998999"


def test_one_long_text_is_cut_as_well() -> None:
    assert said(b"x" * 1000 + b"end") == "xxxxxxxend"


def test_attempts_do_not_mix() -> None:
    tails = Tails(10)
    for token in (TOKEN, (1, 8)):
        tails.begin(token)
        tails.add(token, str(token[1]).encode())
    assert [tails.take(TOKEN), tails.take((1, 8))] == ["7", "8"]


def test_nothing_is_kept_of_an_attempt_that_is_over() -> None:
    tails = Tails(10)
    tails.begin(TOKEN)
    tails.take(TOKEN)
    tails.add(TOKEN, b"late")
    assert tails.take(TOKEN) is None


def test_text_is_never_longer_than_asked_for_and_fit_for_a_message() -> None:
    for hostile in (b"\xff" * 50, b"\0" * 50, "é".encode() * 50, b"\xf0\x9f" * 50):
        text = said(hostile)
        assert text
        assert len(text.encode()) <= 10
        assert "\0" not in text


@pytest.mark.parametrize("piece_bytes", [1, 7, 10, 64])
def test_tail_is_the_end_of_what_was_added(piece_bytes: int) -> None:
    text, tail = bytes(range(200)), Tail(10)
    for start in range(0, len(text), piece_bytes):
        tail.add(text[start : start + piece_bytes])
    assert tail.data == text[-10:]
