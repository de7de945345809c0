"""Aware datetimes among the values of a job: a map with one key, as any language and JSON can write it.

    {"$datetime": "2026-07-20T10:15:00+02:00"}

An instant with its offset from UTC, in the form of RFC 3339, to the microsecond. What comes back is
the same instant with the same offset; the name of a time zone, and with it what that zone's clocks do
on other days, does not travel. An offset that is not whole minutes (local mean time, before about
1900) has no spelling there, and the instant is sent in UTC.

Extension types of msgpack are refused by the strict codec and unknown to JSON, and its timestamp would
lose the offset; text alone could not be told from text. A map of this very form cannot travel as
itself, so it is refused when it is encoded: what goes in comes out.

Loaded by `values.py` only when there is a datetime, so that others do not pay for the import.
"""

from datetime import UTC, datetime
from typing import Any, cast

from .values import INSTANT_KEY

TEXT_MAX = 64
"""Characters of a spelled instant. Every RFC 3339 text fits; nothing longer is worth parsing."""


def is_instant(value: object) -> bool:
    """A datetime of that very type: a subclass would come back as something else."""
    return type(value) is datetime


def refusal_of(value: datetime) -> str | None:
    """Why this one cannot travel; None if it can."""
    if value.utcoffset() is None:
        return "a datetime without a time zone: nobody can say when it is; use datetime.now(UTC)"
    try:
        to_map(value)
    except OverflowError:
        return "a datetime outside of the years 1 to 9999 in UTC"
    return None


def to_map(value: datetime) -> dict[str, str]:
    """As it travels."""
    offset = value.utcoffset()
    if offset is not None and (offset.seconds % 60 or offset.microseconds):
        value = value.astimezone(UTC)
    return {INSTANT_KEY: value.isoformat()}


def spelled(value: object) -> Any:
    """A copy of a checked value, with maps in place of the datetimes."""
    if isinstance(value, datetime):
        return to_map(value)
    if isinstance(value, dict):
        return {key: spelled(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [spelled(item) for item in cast("list[object]", value)]
    return value


def from_map(value: dict[Any, Any]) -> Any:
    """The datetime of a map that spells one, any other map as it is. ValueError for a bad spelling."""
    if len(value) != 1 or INSTANT_KEY not in value:
        return value
    text = value[INSTANT_KEY]
    if type(text) is not str or len(text) > TEXT_MAX:
        raise ValueError(f"{INSTANT_KEY} holds no text like 2026-07-20T10:15:00+02:00")
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{INSTANT_KEY}: {text!a} is not like 2026-07-20T10:15:00+02:00") from None
    if instant.tzinfo is None:
        raise ValueError(f"{INSTANT_KEY}: {text!a} lacks its offset; UTC is written as Z")
    return instant
