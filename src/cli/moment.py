"""Times for people: how long something took or is ago, and when it was, in the local zone."""

import time

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def span(duration_ms: object) -> str:
    """`340ms`, `12s`, `5m 3s`, `2h 10m`, `3d 4h`: two units at most. `-` for what is no number."""
    if not isinstance(duration_ms, int | float):
        return "-"
    left = max(0, int(duration_ms))
    if left < 1000:
        return f"{left}ms"
    if left < 10_000 and left % 1000:
        return f"{left / 1000:.1f}s"
    first = next(at for at, (_, size) in enumerate(_UNITS) if left >= size)
    parts: list[str] = []
    for unit, size in _UNITS[first : first + 2]:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts)


def instant(at_ms: object) -> str:
    """Local date and time with the zone's offset; empty for 0, which means never."""
    if not isinstance(at_ms, int | float) or not at_ms:
        return ""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at_ms / 1000))
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms since 1970"


def size(size_bytes: object) -> str:
    """`512 B`, `1.5 KiB`, `20 MiB`."""
    if not isinstance(size_bytes, int | float):
        return "-"
    value, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"
