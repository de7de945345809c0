"""`stoker reload`: have pools load their code anew, and wait until they have, or have failed to.

A pool is asked by a signal (see `hup`), and what came of it is read from the broker's `status`: the pool tells
when its last reload began, on the monotonic clock, which is the same for all processes of the host. One that
began after the signal was sent is the answer to it, or to somebody's later one.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from ..config.exits import Exit
from ..proto.errors import BrokerUnreachableError
from ..worker.process import Pidfd
from . import hup
from .escape import escape, escape_lines
from .options import duration_option, open_client, socket_option
from .output import put, say
from .reading import mapping, mappings, text

TIMEOUT_MS = 120_000
"""Imports may take long, and start hooks as well."""

_LOOK_S = 0.1

Pools = dict[str, Mapping[str, Any]]
"""Connected pools as `status` has them, by identity."""


@click.command()
@click.option("--pool", "name", metavar="NAME", help="Only pools of this name. Default: all.")
@duration_option("--timeout", "Wait at most so long. Default: 2m.")
@socket_option
def reload(name: str | None, timeout: int | None, socket: str | None) -> int:
    """Have pools load their code anew; print the name of each, and of the code that serves.

    New workers take over one by one, old ones finish what they run. Where the new code does not import,
    or none of its workers comes up, the old code goes on serving: exit code 1, and the reason.
    """
    client = open_client(socket)
    found = pools(client.status(), name)
    if not found:
        whose = "" if name is None else " of that name"
        say(f"stoker: no pool{whose} is connected; see `stoker status`")
        return Exit.NOT_FOUND
    since_ms = time.monotonic_ns() // 1_000_000
    asked = {identity: Asked(pool) for identity, pool in found.items()}
    end = time.monotonic() + (TIMEOUT_MS if timeout is None else timeout) / 1000
    look(asked, since_ms, end, lambda: pools(client.status(), name))
    return max((each.code for each in asked.values()), default=Exit.OK)


def pools(report: Mapping[str, Any], name: str | None) -> Pools:
    """The connected ones of a status, of one name or all."""
    return {
        str(pool.get("identity")): pool
        for pool in mappings(report.get("pools"))
        if pool.get("connected") and name in (None, pool.get("name"))
    }


class Asked:
    """A pool that is to reload, and what has come of it."""

    def __init__(self, pool: Mapping[str, Any]) -> None:
        """Ask it."""
        self._name = hup.name_of(pool)
        self._process: Pidfd | None = None
        self.code: Exit = Exit.FAILURE
        try:
            self._process = hup.ask(pool)
        except hup.NotAskedError as error:
            self._say(str(error))

    @property
    def is_open(self) -> bool:
        """There is no answer yet."""
        return self._process is not None

    def look(self, pool: Mapping[str, Any], since_ms: int) -> None:
        """Take the answer, if there is one in its entry, which is empty where `status` has none."""
        answer = mapping(pool.get("reload"))
        if answer.get("state") in ("done", "failed") and int(answer.get("mono_ms") or 0) >= since_ms:
            self._take(pool, answer)
        elif self._process is not None and self._process.has_exited():
            self._close(Exit.FAILURE)
            self._say("it ended before it had loaded its code")

    def _take(self, pool: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        done = answer.get("state") == "done"
        self._close(Exit.OK if done else Exit.FAILURE)
        if done:
            put(f"{text(pool.get('name'))} {text(pool.get('code'))}")
            return
        lines = escape_lines(str(answer.get("error") or "no reason given").rstrip())
        for line in lines if len(lines) > 1 else ():
            say(line)
        reason = lines[0] if len(lines) == 1 else "its new code does not import"
        self._say(f"{reason}; {text(pool.get('code'))} goes on serving")

    def give_up(self) -> None:
        """Its time is over."""
        self._close(Exit.TIMED_OUT)
        self._say("it is not done yet, and goes on; see `stoker status`")

    def _close(self, code: Exit) -> None:
        self.code = code
        if self._process is not None:
            self._process.close()
            self._process = None

    def _say(self, problem: str) -> None:
        say(f"stoker: {self._name}: {escape(problem)}")


def look(asked: Mapping[str, Asked], since_ms: int, end: float, status: Callable[[], Pools]) -> None:
    """Look until every pool has answered, or the time is over."""
    while left := {identity: each for identity, each in asked.items() if each.is_open}:
        time.sleep(_LOOK_S)
        try:
            now = status()
        except BrokerUnreachableError:
            # It will be back; the pool outlives it, and tells the next one.
            now = {}
        for identity, each in left.items():
            each.look(now.get(identity, {}), since_ms)
            if each.is_open and time.monotonic() > end:
                each.give_up()
