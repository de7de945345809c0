"""Generations: the app's code as one zygote has imported it, and the zygote as it is kept.

There may be several at once: the one that new workers are forked from, one that is being imported to take its
place (`reloading`), and older ones, of which the last workers are finishing what they run. A number is given
once in the life of a pool, also when the same code is imported again because a zygote died.

A generation that was dismissed ends when its last worker has: then its zygote is let go of. Every other end of
a zygote is an accident; its workers die with it, and are taken in before the owner hears of the end.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import trio

from ..proto import limits, nonce
from . import control
from .control import Exited, Failed, Files, Forked, Kinds, Ready, Start, Unforked
from .zygote_link import ZygoteLink, start_directory

SILENCE_MS = 3 * limits.SECOND_MS
"""What a zygote has to say for at least so long, it will not say any more."""


class Generation:
    """One zygote, from its start on, and what it said of the code."""

    def __init__(self, number: int, link: ZygoteLink) -> None:
        self.number = number
        self.link = link
        self.kinds: list[Mapping[str, Any]] = []
        self.files: list[str] = []
        """The app's own, if they are watched."""
        self.flavours: Sequence[str] = ()
        self.digest = "0" * nonce.DIGEST_LENGTH
        self.was_ready = False
        self.can_fork = False
        """The app is imported, and the zygote lives."""
        self.is_dismissed = False
        self.failure: Failed | None = None
        self.began_ns = time.time_ns()
        """Older files are as they were when it imported them."""
        self.nonces: set[str] = set()
        """Of its workers that live, or are being made."""
        self.scope = trio.CancelScope()

    @property
    def code(self) -> str:
        """What this code is called: see `proto.nonce`."""
        return nonce.code(self.number, self.digest)

    def released(self) -> None:
        """Let go of the zygote if it was dismissed and has no workers any more."""
        if self.is_dismissed and not self.nonces:
            self.scope.cancel()


class Owner(Protocol):
    """What keeping generations needs of the supervisor."""

    def heard(self, message: Forked | Unforked | Exited, fd: int | None) -> None:
        """News of a worker."""
        ...

    async def take_in(self, nonces: Sequence[str]) -> None:
        """The zygote of these workers is gone: they are dying, and nobody else will report them."""
        ...

    def imported(self, generation: Generation) -> None:
        """Its app is imported, and workers can be forked."""
        ...

    def overdue(self) -> set[str]:
        """Nonces of the workers of which their zygotes have something to say: a birth, an end."""
        ...

    def died_first(self, nonces: Collection[str]) -> None:
        """These workers had ended before their zygote, which did not say so."""
        ...

    def ended(self, generation: Generation) -> None:
        """It has come to an end nobody asked for. All its workers were taken in."""
        ...


class Generations:
    """All of a pool that have a zygote."""

    def __init__(self, start: Start, owner: Owner, say: Callable[..., None]) -> None:
        self.living: list[Generation] = []
        self._start = start
        self._owner = owner
        self._say = say
        self._directory = start_directory()
        self._count = 0

    def begin(self, nursery: trio.Nursery) -> Generation:
        """Start the next one; OSError if that is not possible."""
        generation = Generation(self._count + 1, ZygoteLink(self._start, self._directory))
        self._count += 1
        self.living.append(generation)
        nursery.start_soon(self._serve, generation)
        return generation

    def dismiss(self, generation: Generation) -> None:
        """No worker is to be forked from it any more."""
        generation.is_dismissed, generation.can_fork = True, False
        generation.released()

    async def watch(self) -> None:
        """Kill a zygote that is stopped or stuck: without it no end of a worker is ever reported."""
        overdue: set[str] = set()
        while True:
            await trio.sleep(SILENCE_MS / 1000)
            before, overdue = overdue, self._owner.overdue()
            for generation in self.living:
                unheard = overdue & generation.nonces
                if unheard & before:
                    self._say("zygote_hangs", pid=generation.link.pid)
                    self._owner.died_first(unheard)
                    generation.link.kill()

    async def _serve(self, generation: Generation) -> None:
        link = generation.link
        try:
            with generation.scope:
                while (packet := await link.receive()) is not None:
                    self._take(generation, *packet)
        finally:
            generation.can_fork = False
            with trio.CancelScope(shield=True):
                await link.end(at_once=not generation.was_ready)
                await self._owner.take_in(sorted(generation.nonces))
            self.living.remove(generation)
        if generation.failure is None and not (generation.is_dismissed and link.code == 0):
            self._say("zygote_died", pid=link.pid, code=link.code)
        if not generation.is_dismissed:
            self._owner.ended(generation)

    def _take(self, generation: Generation, message: control.Message, fd: int | None) -> None:
        if isinstance(message, Forked | Unforked | Exited):
            self._owner.heard(message, fd)
        elif isinstance(message, Kinds):
            generation.kinds.extend(message.kinds)
        elif isinstance(message, Files):
            generation.files.extend(message.paths)
        elif isinstance(message, Failed):
            generation.failure = message
            # It may not end by itself: threads of the app would keep it.
            generation.scope.cancel()
        elif isinstance(message, Ready):
            self._take_ready(generation, message)

    def _take_ready(self, generation: Generation, message: Ready) -> None:
        generation.flavours, generation.digest = message.flavours, message.digest
        generation.was_ready = True
        if message.threads:
            names = ", ".join(message.threads)
            warning = "forking is unsafe: their locks may stay locked"
            self._say("app_has_threads", threads=names, warning=warning)
        if not generation.is_dismissed:
            generation.can_fork = True
            self._owner.imported(generation)
