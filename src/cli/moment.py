"""Times for people: how long something took or is ago, and when it was, in the local zone."""

import time

from ..proto.span import span as exact_span


def span(duration_ms: object) -> str:
    """`340ms`, `12s`, `5m 3s`: see `proto.span`. `-` for what is no number."""
    return exact_span(int(duration_ms)) if isinstance(duration_ms, int | float) else "-"


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
