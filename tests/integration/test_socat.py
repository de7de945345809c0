"""Text mode as a person uses it: a real broker, a real `socat`, a real shell as a worker."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.stack import Stack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("socat") is None, reason="socat is not installed"),
]

SHELL_WORKER = r"""
exec 3>"$1"
echo '{"op": "hello", "version": 1, "role": "work", "kinds": ["greet"], "slots": 1}'
while read -r line; do
    printf '%s\n' "$line" >&3
    case "$line" in
    *'"op": "job"'*)
        token=$(printf '%s' "$line" | sed 's/.*"token": \(\[[0-9, ]*\]\).*/\1/')
        printf '{"op": "ack", "token": %s, "result": "hello from a shell"}\n' "$token" ;;
    '{"ok": true}'*) exit ;;
    esac
done
"""


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    """A running broker without a pool."""
    with Stack(short_directory) as stack:
        stack.start_broker()
        yield stack


def said(stack: Stack, text: str) -> str:
    """What socat prints for what it is given."""
    command = ["socat", "-t", "5", "-", f"UNIX-CONNECT:{stack.socket}"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=20, check=True).stdout


def answer(stack: Stack, **request: Any) -> Any:
    """The answer to one JSON line."""
    return json.loads(said(stack, json.dumps(request) + "\n"))


def test_stats_are_readable(stack: Stack) -> None:
    lines = said(stack, "stats\r\nquit\r\n").splitlines()
    assert lines[0].startswith("OK ")
    assert lines[1] == "---"
    assert "current-jobs-ready: 0" in lines


def test_status_is_one_json_line(stack: Stack) -> None:
    report = answer(stack, op="status")
    assert report["ok"] is True
    assert report["status"]["queues"] == {}


def test_job_enqueued_as_a_json_line_is_there(stack: Stack) -> None:
    stored = answer(stack, op="enqueue", id="order-1", kind="greet", payload="[1]")
    assert (stored["ok"], stored["id"]) == (True, "order-1")
    assert stack.client.show("order-1")["state"] == "ready"
    again = answer(stack, op="enqueue", id="order-1", kind="greet", payload="[2]")
    assert (again["ok"], again["error"]) == (False, "conflict")


def test_shell_script_can_be_a_worker(stack: Stack) -> None:
    script = stack.directory / "worker.sh"
    script.write_text(SHELL_WORKER)
    stack.client.enqueue("greet", id="g-1")
    seen = stack.directory / "seen"
    command = ["socat", f"UNIX-CONNECT:{stack.socket}", f"EXEC:sh {script} {seen}"]
    subprocess.run(command, timeout=30, check=True, capture_output=True)
    assert '"op": "job"' in seen.read_text()
    assert stack.client.wait("g-1", timeout_s=10).state == "done"
    assert stack.client.show("g-1")["result"] == b"hello from a shell"


def test_browser_is_turned_away(stack: Stack) -> None:
    refused = json.loads(said(stack, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    assert refused["error"] == "http_refused"
