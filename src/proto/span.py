"""How long something takes, for people: in answers of the broker and on the command line alike."""

from . import limits

_UNITS = (
    ("d", limits.DAY_MS),
    ("h", limits.HOUR_MS),
    ("m", limits.MINUTE_MS),
    ("s", limits.SECOND_MS),
)

_EXACT_MS = 10 * limits.SECOND_MS
"""Below it, tenths of a second are told."""


def span(duration_ms: int) -> str:
    """`340ms`, `1.5s`, `12s`, `5m 3s`, `2h 10m`, `3d 4h`: two units at most, and nothing below zero."""
    left = max(0, duration_ms)
    if left < limits.SECOND_MS:
        return f"{left}ms"
    if left < _EXACT_MS and left % limits.SECOND_MS:
        return f"{left / limits.SECOND_MS:.1f}s"
    first = next(at for at, (_, size) in enumerate(_UNITS) if left >= size)
    parts: list[str] = []
    for unit, size in _UNITS[first : first + 2]:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts)
