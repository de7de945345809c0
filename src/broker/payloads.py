"""Payloads of waiting jobs that are held in memory, so that handing a job out need not read the disk.

What is cached first is wanted first, so a full cache takes nothing new instead of dropping something
old: the jobs it holds are the next to run. A payload leaves when its job is handed out, is finished
or is deleted; a retry reads it from the journal.
"""

from collections.abc import Iterable

from ..proto.model import FINAL_STATES
from .core.effects import Changes
from .core.job import COLUMNS

_STATE = COLUMNS.index("state")
_NUMBER = COLUMNS.index("number")

OVERHEAD_BYTES = 128
"""What an entry costs besides its bytes: a million empty payloads are not free."""


class PayloadCache:
    """Payload by job number, at most `bytes_max` in all."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._payloads: dict[int, bytes] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._payloads)

    def note(self, changes: Changes) -> None:
        """Follow what is about to be stored: new payloads come in, those of ended jobs go."""
        for number, payload in changes.payloads:
            size = len(payload) + OVERHEAD_BYTES
            if self.bytes + size <= self._bytes_max:
                self._payloads[number] = payload
                self.bytes += size
        for image in changes.images:
            if image[_STATE] in FINAL_STATES:
                self._drop(image[_NUMBER])
        for row in changes.deleted:
            self._drop(row[0])

    def take(self, numbers: Iterable[int]) -> tuple[dict[int, bytes], list[int]]:
        """The payloads that are here, taken out, and the numbers of those that are not."""
        payloads: dict[int, bytes] = {}
        missing: list[int] = []
        for number in numbers:
            payload = self._drop(number)
            if payload is None:
                missing.append(number)
            else:
                payloads[number] = payload
        return payloads, missing

    def _drop(self, number: int) -> bytes | None:
        payload = self._payloads.pop(number, None)
        if payload is not None:
            self.bytes -= len(payload) + OVERHEAD_BYTES
        return payload
