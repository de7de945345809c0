"""The real committer as tests put it together, and some that are broken on purpose, for positive controls."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from stoker.broker.committer import Committer, Release, Reports
from stoker.broker.core.effects import Answer, Changes, Effect, Push, Refuse
from stoker.broker.journal import Journal
from stoker.broker.payloads import PayloadCache
from stoker.broker.thread import JournalRunner

CACHE_BYTES = 2000
"""Small, so that some payloads have to be read from the journal."""

MakeCommitter = Callable[
    [JournalRunner, Callable[[], Changes], Release, Reports, Callable[[Journal], None]], Committer
]


def make_committer(
    runner: JournalRunner,
    take_changes: Callable[[], Changes],
    release: Release,
    reports: Reports,
    make_room: Callable[[Journal], None],
) -> Committer:
    """The real one, with a small cache."""
    return Committer(
        runner, take_changes, release, reports, make_room=make_room, cache=PayloadCache(CACHE_BYTES)
    )


class EagerCommitter(Committer):
    """Answers before the commit."""

    early: ClassVar[type[Effect]] = Answer

    def add(self, effects: Sequence[Effect]) -> None:
        self._release([effect for effect in effects if isinstance(effect, self.early)], _NO_PAYLOADS)
        super().add([effect for effect in effects if not isinstance(effect, self.early)])


class EagerRefuser(EagerCommitter):
    """Refuses before the commit of what the refusal shows."""

    early = Refuse


class EagerPusher(EagerCommitter):
    """Hands out jobs, without their payloads, and has attempts killed before that is on disk."""

    early = Push


_NO_PAYLOADS: defaultdict[int, bytes] = defaultdict(bytes)


def eager_committer(*arguments: Any) -> Committer:
    """That one, made as the real one is."""
    committer = make_committer(*arguments)
    committer.__class__ = EagerCommitter
    return committer
