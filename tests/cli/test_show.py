"""`stoker show`: every part of a job, whatever is missing, nothing that commands the terminal."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.command_line import CommandLine
from support.scripted_broker import ScriptedBroker

from stoker.cli.show import job_lines
from stoker.client.values import encode_arguments, encode_value
from stoker.proto import messages

EVIL = "\x1b]0;owned\x07"
ATTEMPT: dict[str, Any] = {
    "attempt": 1,
    "outcome": "crash",
    "reason": EVIL,
    "report": f"Traceback:\n  {EVIL}",
    "token_epoch": 3,
    "token_counter": 9,
    "worker": "boot-id/4026531836/1716/99/nonce",
    "started_at_ms": 1_700_000_000_000,
    "duration_ms": 1500,
    "signal": 9,
    "status": None,
}
JOB: dict[str, Any] = {
    "id": "order-1",
    "number": 4,
    "kind": "resize",
    "queue": "mail",
    "state": "dead",
    "priority": -3,
    "attempt": 2,
    "charged": 1,
    "crashes": 1,
    "reason": EVIL,
    "created_at_ms": 1_700_000_000_000,
    "due_in_ms": 0,
    "token": [3, 9],
    "payload": encode_arguments([EVIL, 1], {"a": 2}),
    "result": encode_value([EVIL]),
    "policy": {"attempts_max": 5, "time_limit_ms": 30_000, "lease_ms": None},
    "headers": {"trace": EVIL},
    "history": [ATTEMPT],
}


def line(lines: list[str], name: str) -> str:
    found, *_ = [line for line in lines if line.startswith(f"{name} ")]
    return found.removeprefix(name).strip()


def test_parts_of_a_job_are_shown() -> None:
    lines = job_lines(JOB)
    assert line(lines, "id") == "order-1"
    assert line(lines, "priority") == "-3 (lower runs first)"
    assert line(lines, "attempt").startswith("2 (1 charged, 1 crashes)")
    assert line(lines, "policy") == "attempts max 5, time limit 30s"
    assert line(lines, "token") == "3.9"
    assert line(lines, "  kwargs") == '{"a": 2}'


def test_progress_is_told_with_its_age() -> None:
    said = {"done": 3, "total": 12, "text": EVIL, "ago_ms": 4000}
    shown = line(job_lines({"id": "a", "progress": said}), "progress")
    assert shown == "3 of 12 (25 %): \\x1b]0;owned\\x07 (4s ago)"
    assert not any(line.startswith("progress") for line in job_lines({"id": "a", "progress": None}))


def test_attempt_is_a_row_with_its_signal() -> None:
    row = job_lines(JOB)[-1].split()
    assert row[:2] == ["1", "crash"]
    assert "SIGKILL" in row
    assert row[row.index("pid") :][:2] == ["pid", "1716"]
    assert "1.5s" in row


def test_exit_status_is_shown_for_what_was_no_signal() -> None:
    lines = job_lines({"id": "a", "history": [{**ATTEMPT, "signal": None, "status": 3}]})
    assert "exit 3" in lines[-1]


def test_report_is_shown_when_asked_for() -> None:
    assert "  Traceback:" not in job_lines(JOB)
    assert "  Traceback:" in job_lines(JOB, with_report=True)


def test_nothing_of_a_job_commands_the_terminal() -> None:
    lines = job_lines(JOB, with_report=True)
    assert all(line.isprintable() for line in lines)
    assert sum("\\x1b]0;owned\\x07" in line for line in lines) >= 4


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(JOB, VALUES)))
def test_job_of_any_shape_is_shown_harmlessly(job: dict[str, Any]) -> None:
    assert all(line.isprintable() for line in job_lines(job, with_report=True))


def test_show_asks_for_the_payload(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, lambda _: messages.Shown(JOB)) as broker:
        ran = stoker("show", "order-1")
        assert broker.requests[0].message == messages.Show("order-1", True)
    assert "order-1" in ran.out


def test_show_as_json_is_the_map(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, lambda _: messages.Shown(JOB)):
        shown = json.loads(stoker("show", "order-1", "--json").out)
    assert shown["history"][0]["signal"] == 9
    assert "base64" in shown["payload"]


def with_output(*outputs: str | None) -> dict[str, Any]:
    rows = [ATTEMPT | {"attempt": number, "output": said} for number, said in enumerate(outputs, 1)]
    return JOB | {"history": rows}


def test_output_of_the_last_attempt_that_has_some_is_shown() -> None:
    lines = job_lines(with_output("first\n", f"said {EVIL}\nmore\n", None, ""))
    assert lines[-3:] == ["output of attempt 2:", "  said \\x1b]0;owned\\x07", "  more"]


def test_only_the_end_of_a_long_output_is_shown() -> None:
    lines = job_lines(with_output("\n".join(f"line {number}" for number in range(100))))
    assert lines[-21] == "output of attempt 1 (80 lines before these: --output):"
    assert (lines[-20], lines[-1]) == ("  line 80", "  line 99")


def test_all_output_of_all_attempts_is_shown_on_demand() -> None:
    long = "\n".join(f"line {number}" for number in range(100))
    lines = job_lines(with_output(long, "short"), with_output=True)
    assert [line for line in lines if line.startswith("output of")] == [
        "output of attempt 1:",
        "output of attempt 2:",
    ]
    assert "  line 0" in lines


def test_captured_output_is_in_the_json(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, lambda _: messages.Shown(with_output(EVIL))):
        ran = stoker("show", "order-1", "--json").out
    assert json.loads(ran)["history"][0]["output"] == EVIL
    assert ran.strip().isprintable()
