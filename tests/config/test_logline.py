"""Lines of the log: one line of harmless text each, whatever is in it, in both forms."""

import json
from typing import Any

import pytest

from stoker.config import logline
from stoker.config.logline import FORMATS, JSON, LINE_BYTES_MAX, LOGFMT, VALUE_CHARACTERS_MAX
from stoker.config.table import BY_NAME

HOSTILE = ["two\nlines", "\x1b[2J", "\x7f", "\u2028", "\x9b", 'quote"', "a=b c=d", "\ud800", ""]


def a_line(form: str, **fields: object) -> str:
    data = logline.line(form, "2026-07-20T10:15:00.000Z", "broker", "seen", fields)
    assert data.endswith(b"\n")
    return data[:-1].decode("ascii")


def as_json(**fields: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(a_line(JSON, **fields))
    return found


def test_setting_offers_every_form() -> None:
    assert BY_NAME["log.format"].kind.word.split("|") == list(FORMATS)
    assert BY_NAME["log.format"].default == LOGFMT


def test_logfmt_line_has_time_source_event_and_fields() -> None:
    line = a_line(LOGFMT, job=7, reason="no heartbeat")
    assert line == '2026-07-20T10:15:00.000Z broker seen job=7 reason="no heartbeat"'


def test_json_line_has_the_same_and_keeps_types() -> None:
    assert as_json(job=7, ok=True, gone=None, path="/run/x", seconds=1.5) == {
        "time": "2026-07-20T10:15:00.000Z",
        "source": "broker",
        "event": "seen",
        "job": 7,
        "ok": True,
        "gone": None,
        "path": "/run/x",
        "seconds": "1.5",
    }


def test_times_are_utc() -> None:
    assert (logline.moment(0.25), logline.second(61)) == ("1970-01-01T00:00:00.250Z", "1970-01-01T00:01:01Z")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_value_stays_one_quoted_word(hostile: str) -> None:
    line = a_line(LOGFMT, value=hostile)
    assert line.isprintable()
    assert line.partition("value=")[2][0] == line[-1] == '"'


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_value_survives_json(hostile: str) -> None:
    assert a_line(JSON, value=hostile).isprintable()
    assert as_json(value=hostile)["value"] == hostile


def test_plain_values_are_bare() -> None:
    assert [logline.quote(value) for value in ("mail", 7, None, "/run/x.sock")] == [
        "mail",
        "7",
        "None",
        "/run/x.sock",
    ]


def test_long_value_is_cut() -> None:
    assert as_json(value="x" * 100_000)["value"] == "x" * VALUE_CHARACTERS_MAX + "..."


@pytest.mark.parametrize("form", FORMATS)
def test_line_is_never_longer_than_a_pipe_takes_whole(form: str) -> None:
    line = a_line(form, **{f"name{number}": "\x01" * 1000 for number in range(20)})
    assert len(line) < LINE_BYTES_MAX


def test_fields_without_room_are_counted() -> None:
    found = as_json(**{f"name{number}": "\x01" * 1000 for number in range(20)})
    kept = sum(name.startswith("name") for name in found)
    assert found["left_out"] == 20 - kept > 0
