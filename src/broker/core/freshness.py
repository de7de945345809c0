"""Which ids that a client calls fresh can be taken in without a look at the disk.

A client that makes an id for a new job says so, which spares the look-up. But saying so is cheap, and
a second job under an id that the journal holds already would be a fault of the broker, not of that
client. So the word is believed only where memory can vouch for it: the id is a UUID of version 7
whose time is now, give or take a few seconds, and no such id was taken in within these seconds. All
others are looked up, as if the client had said nothing.

"Now" is the latest wall-clock time seen, and ids are forgotten by the time they carry: so a step of
the clock, in either direction, costs look-ups and never trust. Ids of the first seconds after a
start are looked up, because an earlier start may have taken them in.
"""

from ...proto import limits
from .events import Now

_NEVER = -1


class FreshIds:
    """The ids taken in lately, by the time they carry."""

    def __init__(self, now: Now) -> None:
        self._latest_ms = now.wall_ms
        self._floor_ms = now.wall_ms + limits.FRESH_MS
        """Ids that carry this time or an earlier one may be known to an earlier start."""
        self._taken: dict[int, set[str]] = {}
        self._read = ("", _NEVER)
        """The last id whose time was read: it is asked for up to three times on its way in."""

    def __len__(self) -> int:
        return sum(map(len, self._taken.values()))

    def believes(self, id: str, now: Now) -> bool:
        """Whether no job of that id can be on disk."""
        self._latest_ms = latest_ms = max(self._latest_ms, now.wall_ms)
        made_ms = self._made_at(id)
        return (
            made_ms > self._floor_ms
            and -limits.FRESH_MS <= made_ms - latest_ms <= limits.FRESH_MS
            and id not in self._taken.get(made_ms // limits.FRESH_MS, ())
        )

    def take(self, id: str, now: Now) -> None:
        """A job of that id exists from now on."""
        self._latest_ms = latest_ms = max(self._latest_ms, now.wall_ms)
        made_ms = self._made_at(id)
        if not -limits.FRESH_MS <= made_ms - latest_ms <= limits.FRESH_MS:
            return
        slot = made_ms // limits.FRESH_MS
        taken = self._taken.get(slot)
        if taken is None:
            taken = self._taken[slot] = set()
        taken.add(id)

    def _made_at(self, id: str) -> int:
        if self._read[0] is not id:
            self._read = (id, made_at(id))
        return self._read[1]

    def time_passed(self, now: Now) -> None:
        """Forget ids that are believed no more anyhow."""
        self._latest_ms = max(self._latest_ms, now.wall_ms)
        oldest = (self._latest_ms - limits.FRESH_MS) // limits.FRESH_MS
        for slot in [slot for slot in self._taken if slot < oldest]:
            del self._taken[slot]


def made_at(id: str) -> int:
    """The wall-clock milliseconds that a UUID of version 7 carries; -1 for any other id."""
    if len(id) != 36 or id[14] != "7":
        return _NEVER
    try:
        return int(id[:8] + id[9:13], 16)
    except ValueError:
        return _NEVER
