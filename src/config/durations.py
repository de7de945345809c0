"""Durations and sizes as people write them: `500ms 30s 5m 2h 1d`, `512 64KiB 1MiB 2GiB`.

A unit is required for durations, because a bare number would be read as seconds by one person and
as milliseconds by the next. Sizes are bytes unless they say more, in powers of 1024 only.
"""

import re

from ..proto import limits

DURATION_UNITS = {
    "ms": 1,
    "s": limits.SECOND_MS,
    "m": limits.MINUTE_MS,
    "h": limits.HOUR_MS,
    "d": limits.DAY_MS,
}
SIZE_UNITS = {"": 1, "B": 1, "KiB": limits.KIB, "MiB": limits.MIB, "GiB": limits.GIB}

_DURATION = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?(ms|s|m|h|d)").fullmatch
_SIZE = re.compile(r"([0-9]{1,15})(|B|KiB|MiB|GiB)").fullmatch


def parse_duration(text: str) -> int:
    """Milliseconds. ValueError says what was wrong with `text`."""
    match = _DURATION(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s, 5m, 2h or 1d")
    whole, fraction, unit = match.groups()
    scale = DURATION_UNITS[unit]
    duration_ms = int(whole) * scale
    if fraction:
        part, left = divmod(int(fraction) * scale, 10 ** len(fraction))
        if left:
            raise ValueError(f"{text!r} is finer than a millisecond")
        duration_ms += part
    if duration_ms > limits.DURATION_MS_MAX:
        raise ValueError(f"{text!r} is longer than the limit of {format_duration(limits.DURATION_MS_MAX)}")
    return duration_ms


def parse_size(text: str) -> int:
    """Bytes. ValueError says what was wrong with `text`."""
    match = _SIZE(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 512, 64KiB, 1MiB or 2GiB")
    size = int(match[1]) * SIZE_UNITS[match[2]]
    if size > limits.INTEGER_MAX:
        raise ValueError(f"{text!r} is larger than the limit of {limits.INTEGER_MAX} bytes")
    return size


def format_duration(duration_ms: int) -> str:
    """The largest unit that says it exactly: 90000 is `90s`, 3600000 is `1h`."""
    return _format(duration_ms, DURATION_UNITS, "0s")


def format_size(size: int) -> str:
    """The largest unit that says it exactly: 1048576 is `1MiB`, 1500 is `1500B`."""
    return _format(size, {unit: scale for unit, scale in SIZE_UNITS.items() if unit}, "0B")


def _format(value: int, units: dict[str, int], zero: str) -> str:
    if value == 0:
        return zero
    unit, scale = next((unit, scale) for unit, scale in reversed(units.items()) if value % scale == 0)
    return f"{value // scale}{unit}"
