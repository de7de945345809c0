"""Being attached to a job that is a program: its streams on ours, Ctrl-C passed on, its exit status ours."""

import sys
from typing import Any, BinaryIO, cast

from ..client.following import Following, Piece
from ..client.sync import Client
from ..config.exits import INTERRUPTED, SIGNALLED, Exit
from ..proto import messages
from ..proto.errors import RefusedError
from .escape import escape
from .output import OutputClosed, say

HINT_S = 2.0
"""A program that has not begun by then is asked after: perhaps nobody runs programs at all."""


def copy(client: Client, following: Following, id: str) -> None:
    """Until the job is in a final state. What it says goes where it said it."""
    attempt = following.attempt
    pieces = following.read(HINT_S)
    if not (pieces or following.attempt or following.state):
        _say_why(client, id)
    while True:
        if pieces and attempt not in (0, following.attempt):
            say(f"stoker: attempt {following.attempt}")
        attempt = following.attempt
        for piece in pieces:
            write(piece)
        if following.state is not None:
            return
        pieces = following.read()


def write(piece: Piece) -> None:
    """One piece, and what is missing before it."""
    stream = sys.stdout if piece.stream == messages.STDOUT else sys.stderr
    if piece.lost_bytes:
        say(f"stoker: gap of {piece.lost_bytes} bytes")
    if stream is None:
        return
    binary: BinaryIO = stream.buffer
    try:
        binary.write(piece.data)
        binary.flush()
    except BrokenPipeError:
        raise OutputClosed from None


def _say_why(client: Client, id: str) -> None:
    because = client.why(id)
    if because.state in ("ready", "scheduled"):
        reason = f": {escape(because.reasons[0])}" if because.reasons else ""
        say(f"stoker: {id} is {escape(because.state)}{reason}")


def withdraw(client: Client, following: Following, id: str) -> int:
    """Ctrl-C: cancel the job, and stay until nothing of it runs; the exit code."""
    try:
        client.cancel(id)
        copy(client, following, id)
    except RefusedError as error:
        if error.code not in ("too_late", "job_not_found"):
            raise
        # It was quicker, or never came to be.
    except KeyboardInterrupt:
        say(f"stoker: {id} is being cancelled; `stoker wait {id}` tells when nothing of it runs")
    return INTERRUPTED


def exit_status(client: Client, following: Following, id: str) -> int:
    """That of the program in its last attempt; what has none says why, and is JOB_FAILED."""
    outcome = client.wait(id, timeout_s=0)
    if outcome.is_done:
        result: Any = outcome.result
        said = cast("dict[str, int]", result) if type(result) is dict else {}
        lost_bytes = said.get("stdout_bytes", 0) + said.get("stderr_bytes", 0) - following.had_bytes
        if lost_bytes > 0 and following.attempt:
            say(f"stoker: gap of {lost_bytes} bytes")
        return int(said.get("status", Exit.OK))
    history: list[dict[str, Any]] = client.show(id)["history"]
    last: dict[str, Any] = history[-1] if history else {}
    # Of other outcomes a signal on record is that of a worker.
    is_its_own = last.get("outcome") in ("error", "permanent", "timeout", "cancelled")
    status, signal = (last.get(name) if is_its_own else None for name in ("status", "signal"))
    if not status or last["outcome"] in ("timeout", "cancelled"):
        say(f"stoker: {id} is {escape(outcome.state)}: {escape(outcome.reason)}")
    if status:
        return int(status)
    return SIGNALLED + int(signal) if signal else Exit.JOB_FAILED
