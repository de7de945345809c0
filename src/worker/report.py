"""What is told of an exception: one line of reason, and a report. Both are bounded and always exist.

The exception comes from a stranger's code. Its `str` may raise, hang on to 20 MB, hold half of a
surrogate pair or a zero byte; its causes may be thousands or go in a circle; memory may be short. So
nothing of it is used whole before it is cut, and whatever fails is replaced by a text that says so.

Frames of stoker and of Python's import that lead to the stranger's code say nothing to whoever wrote that,
and are left out; an exception that never came to it is a fault of stoker, and has them all.
"""

import importlib
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import cast

from ..proto import limits

CHAIN_MAX = 8
"""Exceptions of one chain of causes (or members of groups) that are shown."""

FRAMES_MAX = 24
"""Frames shown of one traceback, the innermost: those are where it happened."""

NOTES_MAX = 4

Frame = tuple[FrameType, int]
"""A frame and its line."""

_PACKAGE = __file__.rpartition("/worker/")[0]

_MACHINERY = (f"{_PACKAGE}/", "<frozen importlib", f"{importlib.__file__}")
"""How the file names of frames begin that lead to a stranger's code."""

_FALLBACK = "(no report: the exception could not be shown)"


def reason_of(error: BaseException) -> str:
    """`ValueError: text`, at most REASON_BYTES_MAX."""
    try:
        return cut(_headline(error), limits.REASON_BYTES_MAX)
    except BaseException:  # noqa: BLE001 - `str` of a stranger's class may raise anything
        return _FALLBACK


def report_of(error: BaseException) -> str:
    """Traceback with causes, the newest exception first, at most REPORT_BYTES_MAX."""
    try:
        parts = [_one(role, each) for role, each in _chain(error)]
        return cut("\n".join(parts), limits.REPORT_BYTES_MAX)
    except BaseException:  # noqa: BLE001 - the report must exist, whatever is wrong with it
        return _FALLBACK


def is_from_outside(error: BaseException) -> bool:
    """Whether it passed through code that is neither stoker's nor Python's import."""
    return bool(_outside(list(traceback.walk_tb(error.__traceback__))))


def cut(text: str, bytes_max: int) -> str:
    """Text that is valid UTF-8 without zero bytes, cut in the middle with a marker if it is too long."""
    if len(text) > 4 * bytes_max:
        # Cut by characters first, so that no copy of something huge is made for the exact cut.
        left_out = len(text) - 4 * bytes_max
        text = (
            f"{text[: 2 * bytes_max]}\n... about {left_out} characters left out ...\n{text[-2 * bytes_max :]}"
        )
    data = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")
    if len(data) <= bytes_max:
        return data.decode()
    marker = b"\n... %d bytes left out ...\n" % (len(data) - bytes_max)
    half = (bytes_max - len(marker)) // 2
    # Both halves may end within a character; such an end is dropped.
    return (data[:half] + marker + data[-half:]).decode("utf-8", "ignore")


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """The exception, its causes and the members of groups, each once, with its part in the story."""
    seen: set[int] = set()
    waiting = [("", error)]
    while waiting:
        role, each = waiting.pop(0)
        if id(each) in seen:
            continue
        if len(seen) == CHAIN_MAX:
            return
        seen.add(id(each))
        yield role, each
        if each.__cause__ is not None:
            waiting.append(("caused by: ", each.__cause__))
        elif each.__context__ is not None and not each.__suppress_context__:
            waiting.append(("while handling: ", each.__context__))
        if isinstance(each, BaseExceptionGroup):
            members = cast("BaseExceptionGroup[BaseException]", each).exceptions[:CHAIN_MAX]
            waiting.extend(("one of the group: ", member) for member in members)


def _one(role: str, error: BaseException) -> str:
    lines = [role + _headline(error)]
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        lines += [f"  note: {_text(note)}" for note in cast("list[object]", notes)[:NOTES_MAX]]
    lines += _frames(error.__traceback__)
    return "\n".join(lines)


def _headline(error: BaseException) -> str:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = _text(error)
    return f"{name}: {text}" if text else name


def _text(value: object) -> str:
    try:
        text = str(value)
        return text if len(text) <= limits.REPORT_BYTES_MAX else cut(text, limits.REPORT_BYTES_MAX // 2)
    except BaseException as failure:  # noqa: BLE001 - `str` of a stranger's class may raise anything
        return f"(its text cannot be had: str raised {type(failure).__qualname__})"


def _frames(tb: TracebackType | None) -> list[str]:
    frames = list(traceback.walk_tb(tb))
    frames = _outside(frames) or frames
    summary = traceback.StackSummary.extract(iter(frames[-FRAMES_MAX:]))
    left_out = len(frames) - FRAMES_MAX
    lines = [f"  ({left_out} outer frames left out)"] if left_out > 0 else []
    return lines + [line.rstrip("\n") for line in summary.format()]


def _outside(frames: list[Frame]) -> list[Frame]:
    """The frames from the first that is neither stoker's nor Python's import."""
    first = (at for at, (frame, _) in enumerate(frames) if not _is_machinery(frame.f_code.co_filename))
    return frames[next(first, len(frames)) :]


def _is_machinery(file: str) -> bool:
    return file.startswith(_MACHINERY)
