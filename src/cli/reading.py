"""Reading the maps of an answer without trust: what has another shape than expected counts as absent.

A broker of another release may say more or less than this command knows. Text comes out escaped.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from .escape import escape


def mapping(value: object) -> Mapping[str, Any]:
    """The map, or an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def listing(value: object) -> Sequence[Any]:
    """The list, or an empty one."""
    return cast("list[Any]", value) if isinstance(value, list | tuple) else []


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The maps in a list of maps."""
    return [mapping(item) for item in listing(value)]


def text(value: object, absent: str = "") -> str:
    """On one line, escaped; `absent` for nothing."""
    if value is None or value == "":
        return absent
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(str(value))
