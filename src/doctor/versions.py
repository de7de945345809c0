"""Whether the interpreter and the libraries are as new as they have to be, or have a known fault."""

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import NamedTuple

import apsw
import msgpack
import trio

from ..broker.sqlite.opening import MSGPACK_VERSION_MIN, SQLITE_VERSION_MIN
from .finding import Finding, Level

CHECK = "versions"

PYTHON_VERSION_MIN = (3, 11)

Version = tuple[int, ...]


class Versions(NamedTuple):
    """What is installed."""

    python: Version
    sqlite: Version
    apsw: str
    msgpack: Version
    trio: str


def installed() -> Versions:
    return Versions(
        sys.version_info[:3],
        tuple(map(int, apsw.sqlite_lib_version().split("."))),
        apsw.apsw_version(),
        msgpack.version,
        trio.__version__,
    )


def check_versions(found: Versions) -> Iterator[Finding]:
    """The broker refuses to start where one of these is too old."""
    needed = (
        ("Python", found.python, PYTHON_VERSION_MIN, "run stoker with a later one"),
        ("SQLite", found.sqlite, SQLITE_VERSION_MIN, "it may lose a commit; install a later apsw"),
        (
            "msgpack",
            found.msgpack,
            MSGPACK_VERSION_MIN,
            "a malformed frame may crash it; install a later one",
        ),
    )
    for name, has, least, advice in needed:
        if has < least:
            what = f"{name} {dotted(has)} is older than {dotted(least)}"
            yield Finding(Level.ERROR, CHECK, what, advice)
    yield Finding(
        Level.OK,
        CHECK,
        f"stoker {version('stoker')}, {platform.python_implementation()} {dotted(found.python)}, "
        f"SQLite {dotted(found.sqlite)} (apsw {found.apsw}), msgpack {dotted(found.msgpack)}, "
        f"trio {found.trio}",
    )


def dotted(numbers: Version) -> str:
    return ".".join(map(str, numbers))
