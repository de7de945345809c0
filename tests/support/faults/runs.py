"""Runs: what handlers write down at their start, so that deliveries are counted by nobody's word but theirs.

One record of 32 bytes a run: the job's id and the token. All workers append to one file, each record by one
write. Records have one length, which divides that of a page, so none lies across two pages, and a SIGKILL
leaves a record whole or leaves none. What is here has run, however often, whatever a journal says.
"""

import struct
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .. import history as h
from .appending import append, size

_RECORD = struct.Struct("<16sQQ")

Tokens = Mapping[str, list[h.Key]]
"""Job id to the tokens under which it has run, in the order of their starts."""


class Runs:
    """The file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, job_id: str, token: h.Key) -> None:
        """This handler has started. Only ids that the library has made fit in."""
        append(self._path, _RECORD.pack(uuid.UUID(job_id).bytes, *token))

    def count(self) -> int:
        """So many have started."""
        return size(self._path) // _RECORD.size

    def tokens(self) -> Tokens:
        """All of them."""
        found: defaultdict[str, list[h.Key]] = defaultdict(list)
        data = self._path.read_bytes() if self._path.exists() else b""
        assert len(data) % _RECORD.size == 0, f"{self._path} has {len(data)} bytes"
        for id, epoch, counter in _RECORD.iter_unpack(data):
            found[str(uuid.UUID(bytes=id))].append((epoch, counter))
        return found


def wrongs(tokens: Tokens, stored: Sequence[str], finished: int) -> Iterator[str]:
    """What nothing can be a reason for. Of what was stored, the first so many are finished."""
    owners: dict[h.Key, str] = {}
    for job_id, used in tokens.items():
        for token in used:
            if token in owners:
                yield f"token {token} was given for job {owners[token]} and again for {job_id}"
            owners[token] = job_id
    yield from (f"job {job_id} ran, and was never stored" for job_id in tokens.keys() - set(stored))
    yield from (
        f"job {job_id} is finished, and never ran" for job_id in stored[:finished] if job_id not in tokens
    )


def repeated(tokens: Tokens) -> Tokens:
    """Those that have run more than once."""
    return {job_id: used for job_id, used in tokens.items() if len(used) > 1}
