"""Users and groups, from the names of a configuration to the numbers that the kernel compares.

Looked up once, at the start: a name that changes its number while a daemon runs changes nothing, and
one that nobody knows is a mistake, not a rule that never holds.
"""

import grp
import pwd
from collections.abc import Iterable
from typing import NamedTuple

OVERFLOW_ID = 65534
"""What the kernel shows for every user and group that a user namespace does not know: not one of them."""

_ID_MAX = 2**32 - 2
"""The last number, -1, means none."""


class People(NamedTuple):
    """Some users, and all members of some groups."""

    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()


NOBODY = People()


def uid_of(text: str) -> int:
    """The number of a user by name or number; ValueError says what is wrong with it."""
    try:
        return _checked(_number(text) if _is_number(text) else pwd.getpwnam(text).pw_uid, text)
    except KeyError:
        raise ValueError(f"no user {text!r} is known on this host") from None


def gid_of(text: str) -> int:
    """The same for a group."""
    try:
        return _checked(_number(text) if _is_number(text) else grp.getgrnam(text).gr_gid, text)
    except KeyError:
        raise ValueError(f"no group {text!r} is known on this host") from None


def people_of(texts: Iterable[str]) -> tuple[People, list[str]]:
    """Users, and groups that begin with @; and what is wrong with those who cannot be had."""
    uids: set[int] = set()
    gids: set[int] = set()
    wrong: list[str] = []
    for text in texts:
        try:
            if text.startswith("@"):
                gids.add(gid_of(text[1:]))
            else:
                uids.add(uid_of(text))
        except ValueError as error:
            wrong.append(str(error))
    return People(frozenset(uids), frozenset(gids)), wrong


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _number(text: str) -> int:
    value = int(text[:20])
    if value > _ID_MAX:
        raise ValueError(f"{text} is over the highest number, {_ID_MAX}")
    return value


def _checked(value: int, text: str) -> int:
    if value == OVERFLOW_ID:
        raise ValueError(
            f"{text!r} has the number {OVERFLOW_ID}, which stands for any stranger; use another one"
        )
    return value
