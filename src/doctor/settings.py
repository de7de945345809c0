"""The settings: the file could be read, and nothing in it, the environment or the flags is wrong."""

from collections.abc import Iterator, Sequence

from ..config.sources import Effective
from .finding import Finding, Level

CHECK = "settings"


def check_settings(effective: Effective, unreadable: Sequence[str]) -> Iterator[Finding]:
    """`unreadable` says what kept the file from being read; then the rest was taken without it."""
    for line in (*unreadable, *effective.mistakes):
        yield Finding(Level.ERROR, CHECK, line, "no broker and no pool starts with it")
    for line in effective.warnings:
        yield Finding(Level.WARNING, CHECK, line)
    if not unreadable and not effective.mistakes:
        where = effective.file if effective.file is not None else "there is no file"
        which = "everything else is" if effective.warnings else "all settings are"
        yield Finding(Level.OK, CHECK, f"{where}: {which} right")
