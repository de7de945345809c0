"""wait, why, cancel: what they print, and what their exit codes say."""

import json

import pytest
from support.command_line import CommandLine
from support.scripted_broker import ScriptedBroker

from stoker.client.values import encode_value
from stoker.proto import messages

EVIL = "\x1b[2J"


@pytest.mark.parametrize(
    ("state", "outcome", "code"),
    [("dead", "error", 8), ("cancelled", "cancelled", 8), ("leased", None, 6)],
)
def test_wait_says_by_its_exit_code_how_it_ended(
    state: str, outcome: str | None, code: int, socket_path: str, stoker: CommandLine
) -> None:
    answer = messages.Waited("a", state, outcome, EVIL, None, 1)
    with ScriptedBroker(socket_path, lambda _: answer):
        ran = stoker("wait", "a", "--timeout", "1s")
    assert (ran.code, ran.out) == (code, "")
    assert EVIL not in ran.err


def test_wait_prints_the_result_as_json(socket_path: str, stoker: CommandLine) -> None:
    answer = messages.Waited("a", "done", "ok", "", encode_value({"text": EVIL}), 1)
    with ScriptedBroker(socket_path, lambda _: answer) as broker:
        ran = stoker("wait", "a", "--timeout", "1500ms")
        assert broker.requests[0].message == messages.Wait("a", 1500)
    assert json.loads(ran.out) == {"text": EVIL}
    assert EVIL not in ran.out


def test_wait_prints_null_for_a_job_without_a_result(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, lambda _: messages.Waited("a", "done", "ok", "", None, 1)):
        assert stoker("wait", "a") == (0, "null\n", "")


@pytest.mark.parametrize("verb", ["wait", "why", "cancel", "show", "kick", "drop", "pause", "resume"])
@pytest.mark.parametrize("name", ["", "a b", "x" * 129])
def test_name_that_cannot_be_one_is_exit_2(verb: str, name: str, stoker: CommandLine) -> None:
    ran = stoker(verb, name)
    assert ran.code == 2
    assert "is not 1 to 128 characters of" in ran.err


def test_wait_for_ever_sends_no_limit(socket_path: str, stoker: CommandLine) -> None:
    answer = messages.Waited("a", "done", "ok", "", None, 1)
    with ScriptedBroker(socket_path, lambda _: answer) as broker:
        assert stoker("wait", "a").code == 0
        assert broker.requests[0].message.timeout_ms is None


def test_wait_as_json_has_everything(socket_path: str, stoker: CommandLine) -> None:
    answer = messages.Waited("a", "dead", "error", "why", None, 3)
    with ScriptedBroker(socket_path, lambda _: answer):
        ran = stoker("wait", "a", "--json")
    assert json.loads(ran.out) == {
        "id": "a",
        "state": "dead",
        "outcome": "error",
        "reason": "why",
        "result": None,
        "attempt": 3,
    }


def test_why_prints_every_reason_escaped(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, lambda _: messages.Because("a", "ready", ["paused", EVIL])):
        assert stoker("why", "a").out == "a is ready\n  paused\n  \\x1b[2J\n"
        assert json.loads(stoker("why", "a", "--json").out)["reasons"] == ["paused", EVIL]


def test_cancel_prints_the_state(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, lambda _: messages.Cancelled("a", "cancelling")):
        assert stoker("cancel", "a") == (0, "cancelling\n", "")
