"""A finding: how bad it is, what was looked at, what it is, what to do about it."""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple


class Level(IntEnum):
    """From what is right to what keeps a broker from running, or from keeping its promises."""

    OK = 0
    NOTE = 1
    """Nothing is wrong; somebody may want to know."""
    WARNING = 2
    """It runs, but a promise is weaker than it could be, or an accident is on its way."""
    ERROR = 3
    """A broker would not start or takes no jobs, or something is damaged."""


class Finding(NamedTuple):
    level: Level
    check: str
    """What was looked at: one word."""
    what: str
    """Beginning with the path, where it is about one."""
    advice: str = ""
    """What to do; empty where nothing is to be done, or `what` says it."""


def worst(findings: Iterable[Finding]) -> Level:
    """The level of the worst of them."""
    return max((finding.level for finding in findings), default=Level.OK)
