"""Snapshots: consistent copies of the journal, made while the broker works.

A copy is made in slices, each one piece of work for the journal thread, so that commits go on in
between. One at a time: two would only be slower together. The name comes from a peer and was
checked to be one (no slash, no leading dot); the directory never does.
"""

import os
from collections.abc import Callable, Generator

from ..proto.messages import Message, Refusal, SnapshotWritten
from .committer import Committer
from .journal import Journal, JournalFullError
from .thread import JournalRunner

Reply = Callable[[Message], None]


class Snapshots:
    """Writes `<directory>/<name>.db`."""

    def __init__(
        self,
        directory: str,
        committer: Committer,
        runner: JournalRunner,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._directory = directory
        self._committer = committer
        self._runner = runner
        self._failed = failed
        self._path = ""
        self._reply: Reply | None = None
        self._steps: Generator[None, None, int] | None = None

    def write(self, name: str, reply: Reply) -> None:
        """Write one; `reply` gets a SnapshotWritten or a Refusal."""
        if self._reply is not None:
            reply(Refusal("snapshot_failed", f"another snapshot is being written: {self._path}"))
            return
        self._path, self._reply = os.path.join(self._directory, f"{name}.db"), reply
        # The first slice waits for all that was decided before, so that it is in the copy.
        self._committer.look(self._begin, self._came_back, may_pass=True)

    def stop(self) -> None:
        """Give up a copy that is under way; nothing half-written stays behind."""
        self._runner.submit(self._abandon, self._sliced)

    def _abandon(self, _: Journal) -> Message | None:
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        return None

    def _begin(self, journal: Journal) -> Message | None:
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
        except OSError as error:
            return self._refusal(error)
        self._steps = journal.snapshot_steps(self._path)
        return self._advance(journal)

    def _advance(self, _: Journal) -> Message | None:
        """One slice; what to answer, or None if there is more to do. On the journal thread."""
        if self._steps is None:
            return None
        try:
            next(self._steps)
        except StopIteration as done:
            return SnapshotWritten(self._path, done.value)
        except (OSError, JournalFullError) as error:
            return self._refusal(error)
        return None

    def _refusal(self, error: Exception) -> Refusal:
        if isinstance(error, FileExistsError):
            return self._in_the_way(error)
        return Refusal("snapshot_failed", f"{self._path}: {error}")

    def _in_the_way(self, error: FileExistsError) -> Refusal:
        if self._path in (error.filename, error.filename2):
            return Refusal("name_taken", f"{self._path} exists; no snapshot is ever overwritten")
        if error.filename == self._directory:
            return Refusal("snapshot_failed", f"{self._directory} is not a directory; move it away")
        return Refusal("snapshot_failed", f"{error.filename} is left from an earlier one; remove it")

    def _came_back(self, message: Message | None) -> None:
        if message is not None:
            assert self._reply is not None
            reply, self._reply, self._steps = self._reply, None, None
            reply(message)
        elif self._steps is not None:
            self._runner.submit(self._advance, self._sliced)

    def _sliced(self, message: Message | None, error: BaseException | None) -> None:
        if error is None:
            self._came_back(message)
        else:
            self._failed(error)
