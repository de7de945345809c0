"""Rows made to fit a terminal: what is cut, what is left out, and what never is."""

import fcntl
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from support.scripted_broker import ScriptedBroker

from stoker.cli.output import table
from stoker.cli.width import Fitted, fitted
from stoker.proto import messages

HEADS = ("id", "queue", "created", "reason")
ROWS = [["job-1", "mail", "yesterday", "it was too long " * 3], ["job-22", "m", "today", ""]]


def fit(width: int | None) -> Fitted:
    return fitted(HEADS, ROWS, width, texts={"reason": 10, "queue": 5}, spare=("created", "reason"))


def test_without_a_terminal_everything_is_whole() -> None:
    found = fit(None)
    assert (found.heads, found.rows, found.left_out) == ([*HEADS], ROWS, [])


def test_texts_are_cut_before_a_column_is_left_out() -> None:
    found = fit(40)
    assert found.left_out == []
    assert found.rows[0][3] == "it was too ..."


@pytest.mark.parametrize(("width", "left_out"), [(36, []), (35, ["created"]), (25, ["created"])])
def test_columns_go_in_their_order(width: int, left_out: list[str]) -> None:
    assert fit(width).left_out == left_out


def test_what_may_neither_be_cut_nor_left_out_stays_whole() -> None:
    found = fit(1)
    assert [row[0] for row in found.rows] == ["job-1", "job-22"]
    assert found.left_out == ["created", "reason"]


@pytest.mark.parametrize("width", range(13, 80))
def test_whatever_can_fit_does(width: int) -> None:
    found = fit(width)
    assert max(map(len, table(found.heads, found.rows))) <= width


def test_cells_are_escaped_before_they_are_measured() -> None:
    found = fitted(("a", "b"), [["\x1b" * 20, "b"]], 20, texts={"a": 4}, spare=())
    assert max(map(len, table(found.heads, found.rows))) <= 20


@pytest.mark.slow
def test_jobs_fit_a_terminal_of_80_columns(socket_path: str, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    job = {"id": "01a22927-37fb-706a-b119-5295d1d269b7", "number": 1234567, "kind": "send_webhook" * 5}
    rows = [job | {"queue": "default", "state": "scheduled", "reason": "x" * 99, "created_at_ms": 10**12}]
    with ScriptedBroker(socket_path, lambda _: messages.JobsPage(rows, 0)):
        command = [sys.executable, "-m", "stoker.cli.main", "jobs", "--socket", socket_path]
        said = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, check=True).stderr
    os.close(theirs)
    head, row = os.read(ours, 4096).decode().splitlines()
    os.close(ours)
    assert max(len(head), len(row)) <= 80
    assert str(job["id"]) in row
    assert b"left out for lack of width: priority, created, attempt, reason; --json has them" in said
