"""A payload as a person can read it: the library's msgpack, JSON, or the beginning of raw bytes.

Only for showing. Everything returned is escaped, and cut where it is long.
"""

import json
from typing import Any, cast

from ..client.values import decode_value
from .escape import CUT, escape, escape_bytes
from .reading import listing

SHOWN_MAX = 2000
"""Characters of one value; `stoker show --json` has all of it."""


def payload_fields(payload: bytes) -> list[tuple[str, str]]:
    """Names and texts: what it is, then args and kwargs, a value, or a preview."""
    call = _call(payload)
    if call is not None:
        args, kwargs = call
        return [
            ("payload", f"{len(payload)} bytes, arguments"),
            ("  args", value_text(args)),
            ("  kwargs", value_text(kwargs)),
        ]
    if payload[:1] in (b"[", b"{"):
        try:
            return [
                ("payload", f"{len(payload)} bytes, JSON"),
                ("  args" if payload[:1] == b"[" else "  kwargs", value_text(json.loads(payload))),
            ]
        except (ValueError, RecursionError):
            pass  # It only looked like JSON.
    return [("payload", f"{len(payload)} bytes"), ("  bytes", escape_bytes(payload, SHOWN_MAX))]


def result_text(result: bytes) -> str:
    """What a handler returned: its value, or the beginning of other bytes."""
    try:
        return value_text(decode_value(result))
    except ValueError:
        return escape_bytes(result, SHOWN_MAX)


def value_text(value: Any) -> str:
    """A value on one line, much as it would be written in JSON; bytes as Python writes them."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=_spell)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    safe = escape(text[: SHOWN_MAX + 1])
    return safe if len(safe) <= SHOWN_MAX else safe[:SHOWN_MAX] + CUT


def _spell(value: object) -> object:
    """What JSON has no word for: a datetime as it is enqueued, anything else as Python writes it."""
    from ..client.instants import is_instant, to_map

    return to_map(cast(Any, value)) if is_instant(value) else repr(value)


def _call(payload: bytes) -> tuple[object, object] | None:
    try:
        value = decode_value(payload)
    except ValueError:
        return None
    parts = listing(value)
    if len(parts) != 2:
        return None
    is_call = isinstance(parts[0], list) and isinstance(parts[1], dict)
    return (cast(object, parts[0]), cast(object, parts[1])) if is_call else None
