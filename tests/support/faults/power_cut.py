"""What a power cut may leave of files, worked out from a tape of what was asked of the disk.

What was synced is there. Of what was not, anything may be: nothing, all, a beginning, or any subset of
512-byte sectors, for each file by itself, whatever the order of the calls. A sector is written whole or
not at all. A file may have grown without the bytes that made it grow, which then read as zeros. A name
that was removed without a sync of its directory may still be there, with what was durable of it; what was
written under the name since is then on no disk.
"""

from collections.abc import Sequence
from random import Random

from .tape import Cut, Deleted, Lost, Operation, Renamed, Replaced, Synced, Wrote

SECTOR_BYTES = 512

Files = dict[str, bytes]
"""Content by name, of the files that are there."""


class Platter:
    """What is on the disk for certain, and what has been asked of it since."""

    def __init__(self) -> None:
        self._durable: Files = {}
        self._pending: dict[str, list[Operation]] = {}
        self._renamed: Renamed | None = None

    def take(self, operation: Operation) -> None:
        """The next operation of the tape."""
        match operation:
            case Wrote() | Cut():
                self._pending.setdefault(operation.file, []).append(operation)
            case Synced(file):
                self._settle(file)
            case Lost(file):
                # Its size and its removal are the file system's own business, and not forgotten.
                pending = self._pending.get(file, [])
                pending[:] = [each for each in pending if not isinstance(each, Wrote)]
            case Deleted(file, synced):
                self._pending.setdefault(file, []).append(operation)
                if synced:
                    self._settle(file)
            case Renamed(old, new):
                self._settle(old)
                self._durable[new] = self._durable.pop(old)
            case Replaced(files):
                self._durable, self._pending = dict(files), {}

    def _settle(self, file: str) -> None:
        content = _carried_out(self._durable.get(file), self._pending.pop(file, []))
        if content is None:
            self._durable.pop(file, None)
        else:
            self._durable[file] = content

    @property
    def is_settled(self) -> bool:
        """Nothing is left to chance: every cut here leaves the same."""
        return not any(self._pending.values())

    def image(self, chance: Random) -> Files:
        """The files of one legal outcome of a power cut at this moment."""
        files = dict(self._durable)
        for file, pending in self._pending.items():
            content = _after_cut(self._durable.get(file), pending, chance)
            if content is None:
                files.pop(file, None)
            else:
                files[file] = content
        return files


def _carried_out(before: bytes | None, operations: Sequence[Operation]) -> bytes | None:
    """The content of a file after all of these; None if it is not there."""
    content = None if before is None else bytearray(before)
    for operation in operations:
        if isinstance(operation, Deleted):
            content = None
        elif isinstance(operation, Wrote):
            content = bytearray() if content is None else content
            _write(content, operation.offset, operation.data)
        elif isinstance(operation, Cut):
            content = bytearray() if content is None else content
            _resize(content, operation.size)
    return None if content is None else bytes(content)


def _after_cut(before: bytes | None, pending: Sequence[Operation], chance: Random) -> bytes | None:
    deleted = [place for place, operation in enumerate(pending) if isinstance(operation, Deleted)]
    if deleted:
        if chance.random() < 0.5:
            # The old file is still there, and what came after its removal went into another one.
            return _survivors(before, pending[: deleted[0]], chance)
        before, pending = None, pending[deleted[-1] + 1 :]
    return _survivors(before, pending, chance)


def _survivors(before: bytes | None, pending: Sequence[Operation], chance: Random) -> bytes | None:
    how = chance.randrange(4)
    if how == 0 or not pending:
        return before
    if how == 1:
        return _carried_out(before, pending)
    if how == 2:
        whole = chance.randrange(len(pending))
        return _torn(_carried_out(before, pending[:whole]), pending[whole : whole + 1], 0.5, chance)
    return _torn(before, pending, chance.random(), chance)


def _torn(
    before: bytes | None, operations: Sequence[Operation], share: float, chance: Random
) -> bytes | None:
    """Each sector of each write, and each change of size, is kept with that probability."""
    content = bytearray(before or b"")
    grows = chance.random() < 0.5
    for operation in operations:
        if isinstance(operation, Cut):
            if chance.random() < share:
                _resize(content, operation.size)
        elif isinstance(operation, Wrote):
            _write_some(content, operation, share, chance)
            if grows and len(content) < operation.offset + len(operation.data):
                _resize(content, operation.offset + len(operation.data))
    return None if before is None and not content else bytes(content)


def _write_some(content: bytearray, wrote: Wrote, share: float, chance: Random) -> None:
    at, end = wrote.offset, wrote.offset + len(wrote.data)
    while at < end:
        until = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if chance.random() < share:
            _write(content, at, wrote.data[at - wrote.offset : until - wrote.offset])
        at = until


def _write(content: bytearray, offset: int, data: bytes) -> None:
    if offset > len(content):
        _resize(content, offset)
    content[offset : offset + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
