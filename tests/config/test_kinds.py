"""What a setting may hold: read from text, read from TOML, refused, and shown as a file would have it."""

from typing import Any

import pytest

from stoker.config.kinds import (
    Choice,
    Duration,
    Kind,
    Mode,
    Number,
    Path,
    People,
    Person,
    Size,
    Turns,
    Word,
)
from stoker.config.table import QUEUE_SETTINGS, SETTINGS, Setting
from stoker.proto import limits
from stoker.proto.model import Overflow

NUMBER = Number(-5, 10)
SIZE = Size(1, limits.MIB)
DURATION = Duration(1, limits.HOUR_MS)
WORD = Word("FULL", "NORMAL")
PATH = Path("PATH")
MODE = Mode()
USER = Person("user")
PEOPLE = People()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (NUMBER, "-5", -5),
        (SIZE, "64KiB", 65536),
        (SIZE, "512", 512),
        (DURATION, "1.5s", 1500),
        (WORD, "FULL", "FULL"),
        (Choice(Overflow), "wait", Overflow.WAIT),
        (PATH, "there/it.sock", "there/it.sock"),
        (MODE, "0660", 0o660),
        (MODE, "600", 0o600),
        (USER, "1000", "1000"),
        (PEOPLE, "alice, @ops,1000,@1000", ("alice", "@ops", "1000", "@1000")),
    ],
)
def test_text_is_read(kind: Kind, text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "found", "value"),
    [
        (NUMBER, 10, 10),
        (SIZE, 512, 512),
        (SIZE, "1MiB", limits.MIB),
        (DURATION, "500ms", 500),
        (PATH, "/srv/it.sock", "/srv/it.sock"),
        (MODE, "0666", 0o666),
        (USER, 1000, "1000"),
        (USER, "alice", "alice"),
        (PEOPLE, ["alice", 1000, "@ops"], ("alice", "1000", "@ops")),
        (PEOPLE, [], ()),
    ],
)
def test_toml_is_read(kind: Kind, found: object, value: object) -> None:
    assert kind.take(found) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((NUMBER, text) for text in ("", "-6", "11", "x", "1.0", "٣", "--1", "9" * 5000)),
        *((SIZE, text) for text in ("0", "2MiB", "1MB", "-1")),
        *((DURATION, text) for text in ("5", "0s", "61m", "soon")),
        *((WORD, text) for text in ("", "full", "OFF")),
        *((PATH, text) for text in ("", "a\0b")),
        *((MODE, text) for text in ("0777", "0700", "0066", "660x", "0o660", "1660", "0606 ")),
        *((USER, text) for text in ("", "@ops", "a b", "a,b", "a:b")),
        *((PEOPLE, text) for text in ("", "alice,", "alice,,bob", "@", "@@ops", "alice bob")),
    ],
)
def test_text_that_is_not_allowed_is_refused(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError):
        kind.parse(text)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        *((NUMBER, found) for found in ("3", 3.0, True, 11, None)),
        *((SIZE, found) for found in (True, 1.5, 0, [1])),
        *((DURATION, found) for found in (5, 5.0, True, "5")),
        *((PATH, found) for found in ("there/it.sock", "~/it.sock", 3)),
        *((MODE, found) for found in (0o660, 660, "0777")),
        *((USER, found) for found in (True, 1.0, -1, ["alice"])),
        *((PEOPLE, found) for found in ("alice", [1.0], [True], [-1], [["alice"]], {"alice": 1})),
    ],
)
def test_toml_that_is_not_allowed_is_refused(kind: Kind, found: object) -> None:
    with pytest.raises(ValueError):
        kind.take(found)


@pytest.mark.parametrize("setting", [*SETTINGS, *QUEUE_SETTINGS], ids=lambda setting: setting.name)
def test_default_is_shown_as_a_file_may_have_it(setting: Setting) -> None:
    if setting.default is not None:
        shown: Any = setting.kind.show(setting.default)
        assert setting.kind.take(shown) == setting.default


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("mail,default", (("mail", 0), ("default", 0)), ["mail", "default"]),
        ("mail=3, default=1", (("mail", 3), ("default", 1)), ["mail=3", "default=1"]),
    ],
)
def test_turns_have_an_order_or_weights(text: str, value: object, shown: list[str]) -> None:
    assert Turns().parse(text) == value
    assert Turns().show(value) == shown
    assert Turns().take(shown) == value


@pytest.mark.parametrize("text", ["", "a,a", "a=1,b", "a=0", "a=1001", "a=x", "a=", "a b", ",", "a=1=2"])
def test_turns_that_cannot_be_meant_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Turns().parse(text)


def test_turns_in_a_file_are_a_list_of_text() -> None:
    for wrong in ("mail", 5, [5], [["mail", 1]]):
        with pytest.raises(ValueError):
            Turns().take(wrong)
