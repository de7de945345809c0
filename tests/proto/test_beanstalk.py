"""The answer to `stats`, read back as a monitor of beanstalkd would."""

from typing import Any

import pytest

from stoker.proto import beanstalk
from stoker.proto.messages import Refusal

STATUS: dict[str, Any] = {
    "epoch": 3,
    "draining": False,
    "totals": {"ready": 3, "leased": 1, "scheduled": 4, "dead": 5, "done": 6},
    "queues": {"mail": {"ready": 2, "dead": 5}},
    "workers": [{"name": "w"}],
    "left_out": {"queues": 1, "workers": 2},
    "storage": {"free_share": 0.5, "last_error": None},
    "name": "a\n- b: \x1b[31m",
}


def figures(status: dict[str, Any]) -> dict[str, str]:
    head, _, rest = beanstalk.stats_answer(status).partition(b"\r\n")
    size = int(head.removeprefix(b"OK "))
    assert rest[size:] == b"\r\n"
    first, *lines = rest[:size].decode("ascii").splitlines()
    assert first == "---"
    return dict(line.split(": ", 1) for line in lines)


def test_familiar_keys_count_everything_also_what_lists_leave_out() -> None:
    found = figures(STATUS)
    assert [found[f"current-jobs-{word}"] for word in ("ready", "reserved", "delayed", "buried")] == list(
        "3145"
    )
    assert (found["current-tubes"], found["current-workers"]) == ("2", "3")


def test_every_figure_of_status_stands_under_its_path() -> None:
    found = figures(STATUS)
    assert (found["epoch"], found["draining"]) == ("3", "false")
    assert (found["queues-mail-dead"], found["storage-free-share"]) == ("5", "0.5")


def test_a_value_never_breaks_out_of_its_line() -> None:
    assert figures(STATUS)["name"] == '"a\\n- b: \\u001b[31m"'


def test_lists_and_nothing_are_left_out() -> None:
    assert not {"workers", "storage-last-error"} & figures(STATUS).keys()


def test_an_empty_status_still_has_the_familiar_keys() -> None:
    assert figures({})["current-jobs-ready"] == "0"


@pytest.mark.parametrize(
    ("code", "word"),
    [("shutting_down", b"DRAINING"), ("forbidden", b"FORBIDDEN"), ("internal", b"INTERNAL_ERROR")],
)
def test_refusals_have_beanstalkds_word(code: str, word: bytes) -> None:
    assert beanstalk.refusal_line(Refusal(code, "")) == word + b"\r\n"
