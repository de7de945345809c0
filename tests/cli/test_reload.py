"""`stoker reload`: who is asked, and what it says of what came of it."""

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.command_line import CommandLine
from support.pool_process import pool_entry, start_pool_process, was_hung_up
from support.scripted_broker import Close, Request, ScriptedBroker

from stoker.proto import messages
from stoker.proto.messages import Message

pytestmark = pytest.mark.slow

EVIL = "\x1b[31m"


class Stage:
    """A broker whose `status` has one pool, which becomes what the test says after it was asked."""

    def __init__(self, path: str, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pool = pool_entry(process.pid, connected=True, reload=None)
        self.becomes: list[dict[str, Any] | None] = []
        """At each further look; the last stays. None: the broker is away."""
        self.broker = ScriptedBroker(path, self._answer)
        self._looks = 0

    def _answer(self, request: Request) -> Message | Close:
        assert isinstance(request.message, messages.Status)
        looks, self._looks = self._looks, self._looks + 1
        if not (looks and self.becomes):
            return messages.StatusReport({"pools": [self.pool]})
        became = self.becomes[min(looks, len(self.becomes)) - 1]
        if became is None:
            return Close()
        return messages.StatusReport({"pools": [self.pool | became]})


@pytest.fixture
def stage(socket_path: str) -> Iterator[Stage]:
    with start_pool_process() as process:
        stage = Stage(socket_path, process)
        with stage.broker:
            yield stage
        process.kill()


def reloaded(state: str, *, ago_ms: int = -60_000, error: str | None = None, **fields: Any) -> dict[str, Any]:
    """An entry that tells of a reload which began so long ago: by default after any signal of this test."""
    mono_ms = time.monotonic_ns() // 1_000_000 - ago_ms
    return {"reload": {"state": state, "mono_ms": mono_ms, "error": error}} | fields


def test_name_and_code_of_each_pool_are_printed(stage: Stage, stoker: CommandLine) -> None:
    stage.becomes = [reloaded("loading"), reloaded("starting"), reloaded("done", code="2-cafe0000")]
    assert stoker("reload") == (0, "tasks:app 2-cafe0000\n", "")
    assert was_hung_up(stage.process)


def test_failure_is_said_with_its_traceback_and_what_goes_on_serving(
    stage: Stage, stoker: CommandLine
) -> None:
    error = f"Traceback (most recent call last):\n  in tasks.py{EVIL}\nSyntaxError: no{EVIL}"
    stage.becomes = [reloaded("failed", error=error)]
    ran = stoker("reload")
    assert (ran.code, ran.out, EVIL in ran.err) == (1, "", False)
    *traceback, said = ran.err.splitlines()
    assert traceback == [
        "Traceback (most recent call last):",
        r"  in tasks.py\x1b[31m",
        r"SyntaxError: no\x1b[31m",
    ]
    assert said == "stoker: pool tasks:app: its new code does not import; 1-5d41402a goes on serving"


def test_failure_of_one_line_is_said_on_one_line(stage: Stage, stoker: CommandLine) -> None:
    stage.becomes = [reloaded("failed", error="no new worker came up")]
    said = "stoker: pool tasks:app: no new worker came up; 1-5d41402a goes on serving\n"
    assert stoker("reload") == (1, "", said)


def test_result_of_an_earlier_reload_is_not_taken_for_this_one(stage: Stage, stoker: CommandLine) -> None:
    stage.becomes = [reloaded("failed", ago_ms=60_000), reloaded("done", code="3-cafe0000")]
    assert stoker("reload").out == "tasks:app 3-cafe0000\n"


def test_broker_that_is_away_meanwhile_is_waited_for(stage: Stage, stoker: CommandLine) -> None:
    stage.becomes = [None, None, reloaded("done", code="2-cafe0000")]
    assert stoker("reload").code == 0


def test_pool_that_ends_meanwhile_is_a_failure(socket_path: str, stoker: CommandLine) -> None:
    # It stays in this `status`, as a real one would show it for a moment.
    with start_pool_process(then="ends") as process, Stage(socket_path, process).broker:
        ran = stoker("reload")
    assert (ran.code, ran.out) == (1, "")
    assert "ended before it had loaded its code" in ran.err


def test_pool_that_cannot_be_proved_is_not_asked(stage: Stage, stoker: CommandLine) -> None:
    stage.pool["identity"] = stage.pool["identity"].replace(f"/{stage.process.pid}/", "/1/")
    ran = stoker("reload")
    assert (ran.code, "stoker: pool tasks:app: " in ran.err) == (1, True)
    assert not was_hung_up(stage.process)


@pytest.mark.parametrize("arguments", [(), ("--pool", "other")])
def test_nobody_to_ask_is_exit_3(arguments: tuple[str, ...], stage: Stage, stoker: CommandLine) -> None:
    stage.pool["connected"] = bool(arguments)
    ran = stoker("reload", *arguments)
    assert (ran.code, "no pool" in ran.err) == (3, True)
    assert not was_hung_up(stage.process)
