"""One line of the daemons' log, in either of its formats; whatever a value holds, it stays one line.

    logfmt   2026-11-29T20:47:54.317Z broker ready pid=7 socket=/run/stoker/broker.sock
    json     {"time": "2026-11-29T20:47:54.317Z", "source": "broker", "event": "ready", "pid": 7, ...}

Plain ASCII: control characters, quotes and all that is not ASCII are escaped, and long values cut. A line
has a greatest length, below which several processes may write to one pipe without mixing; fields for which
there is no room are left out and counted, never cut in the middle of an escape.
"""

import json
import time
from collections.abc import Mapping

LOGFMT, JSON = FORMATS = ("logfmt", "json")

LINE_BYTES_MAX = 4000
"""With the end of the line, well below PIPE_BUF."""

VALUE_CHARACTERS_MAX = 300

_LEFT_OUT_BYTES = 24
"""Room for the count of fields that were left out."""

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-/+,@%[]()<>#*'")


def moment(at_s: float) -> str:
    """A time in milliseconds, UTC."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at_s))}.{int(at_s * 1000) % 1000:03d}Z"


def second(at_s: float) -> str:
    """A time in whole seconds, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def line(form: str, stamp: str, source: str, event: str, fields: Mapping[str, object]) -> bytes:
    """One line with its end. An empty `source` and `event` are left out of a logfmt line."""
    if form == JSON:
        head = [f'"time": "{stamp}"', f'"source": "{source}"', f'"event": "{event}"']
        pairs = [f"{_json(name)}: {_value(value)}" for name, value in fields.items()]
        return b"{" + _joined(head + pairs, ", ", '"left_out": ').encode("ascii") + b"}\n"
    words = [word for word in (stamp, source, event) if word]
    words += [f"{name}={quote(value)}" for name, value in fields.items()]
    return _joined(words, " ", "left_out=").encode("ascii") + b"\n"


def quote(value: object) -> str:
    """One value: bare if nothing in it needs care, else a JSON string in plain ASCII."""
    text = _cut(value)
    return text if text and _PLAIN.issuperset(text) else _json(text)


def _cut(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    return text[:VALUE_CHARACTERS_MAX] + "..." if len(text) > VALUE_CHARACTERS_MAX else text


def _value(value: object) -> str:
    # By type, because True and members of enumerations are integers and texts as well.
    if value is None or type(value) in (bool, int):
        return json.dumps(value)
    return _json(_cut(value))


def _json(text: str) -> str:
    # json leaves DEL alone, which terminals act on.
    return json.dumps(text).replace("\x7f", "\\u007f")


def _joined(parts: list[str], separator: str, left_out: str) -> str:
    kept: list[str] = []
    room = LINE_BYTES_MAX - _LEFT_OUT_BYTES
    for part in parts:
        room -= len(part) + len(separator)
        if room < 0:
            kept.append(f"{left_out}{len(parts) - len(kept)}")
            break
        kept.append(part)
    return separator.join(kept)
