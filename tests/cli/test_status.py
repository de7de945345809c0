"""`stoker status`: a report for people, and what there is to say when no broker runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command_line import CommandLine
from support.scripted_broker import ScriptedBroker

from stoker.broker.lasterror import LastError, write_last_error
from stoker.cli.status import status_lines
from stoker.proto import messages

EVIL = "\x1b[31m"
REPORT: dict[str, Any] = {
    "version": "0.1.0",
    "epoch": 7,
    "started_at_ms": 1_700_000_000_000,
    "draining": False,
    "queues": {
        "mail": {"ready": 3, "dead": 2, "oldest_ready_ms": 62_000, "bytes": 4096, "paused": True},
        "default": {},
    },
    "pools": [
        {"name": "tasks:app", "workers": 4, "connected": False, "kinds": ["a", "b"], "code": "2-5d41402a"}
    ],
    "workers": [{"name": "w", "pid": 12, "state": "busy", "jobs": ["order-1", "order-2"]}],
    "storage": {"journal_bytes": 1536, "full": True, "full_since_at_ms": 1_700_000_000_000},
    "warnings": [EVIL],
    "data": "/var/lib/stoker",
}


def test_queue_has_its_counts_and_the_age_of_its_oldest_job() -> None:
    head, default, mail = status_lines(REPORT)[2:5]
    assert head.split()[:7] == ["queue", "ready", "scheduled", "leased", "done", "dead", "cancelled"]
    assert default.split()[0] == "default"
    assert mail.split() == ["mail", "3", "0", "0", "0", "2", "0", "1m", "2s", "4", "KiB", "paused"]


def test_pools_workers_storage_and_warnings_are_shown() -> None:
    text = "\n".join(status_lines(REPORT))
    assert "tasks:app        4  disconnected  2-5d41402a  a, b" in text
    assert "w        12  busy   order-1, order-2" in text
    assert "storage\n  directory   /var/lib/stoker\n" in text
    assert "journal     1.5 KiB" in text
    assert "full since  2023-11-1" in text
    assert "warning: \\x1b[31m" in text


def test_what_a_row_leaves_out_is_counted() -> None:
    pool = {"name": "p", "workers": 1, "kinds": ["a", "b"], "kinds_left_out": 3}
    worker = {"name": "w", "pid": 1, "state": "busy", "jobs": ["one"], "jobs_left_out": 2}
    text = "\n".join(status_lines({"pools": [pool], "workers": [worker]}))
    assert "a, b, and 3 more" in text
    assert "one, and 2 more" in text


def test_report_without_pools_says_how_to_start_one() -> None:
    assert any("stoker pool APP" in line for line in status_lines({}))


@pytest.mark.parametrize("state", ["draining", "paused_all"])
def test_what_holds_up_every_job_is_said_and_how_to_end_it(state: str) -> None:
    assert "stoker resume" in status_lines({state: True})[0]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(REPORT, VALUES)))
def test_report_of_any_shape_is_shown_harmlessly(report: dict[str, Any]) -> None:
    assert all(line.isprintable() for line in status_lines(report))


def test_status_as_json_is_the_map(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, lambda _: messages.StatusReport(REPORT)):
        ran = stoker("status", "--json")
    assert json.loads(ran.out) == REPORT
    assert EVIL not in ran.out


def test_status_without_a_broker_has_the_last_error(short_directory: Path, stoker: CommandLine) -> None:
    write_last_error(str(short_directory), LastError(1_700_000_000_000, "STORAGE", f"disk {EVIL}"))
    ran = stoker("status", "--data", str(short_directory))
    assert (ran.code, ran.out) == (5, "")
    assert "stoker up" in ran.err
    assert "disk \\x1b[31m" in ran.err


def test_start_after_an_error_is_not_said_to_have_looked_at_everything(
    short_directory: Path, stoker: CommandLine
) -> None:
    write_last_error(str(short_directory), LastError(1, "STORAGE", "EIO", 5))
    ran = stoker("status", "--data", str(short_directory))
    assert "EIO; a later start came up, but a start looks at" in ran.err and "not at payloads" in ran.err


def test_status_without_a_broker_or_an_error_says_only_that(
    short_directory: Path, stoker: CommandLine
) -> None:
    ran = stoker("status", "--data", str(short_directory))
    assert ran.code == 5
    assert len(ran.err.splitlines()) == 1


def test_directory_that_cannot_be_read_is_said(short_directory: Path, stoker: CommandLine) -> None:
    (short_directory / "file").write_text("")
    ran = stoker("status", "--data", str(short_directory / "file"))
    assert ran.code == 5
    assert "cannot be read: Not a directory" in ran.err
