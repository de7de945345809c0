"""How fast what programs write is read, all of a worker together.

Nothing is made of it but its end, so there is no use in reading a flood as fast as it comes: that takes a processor
for reading and others for writing. Who has written more than his part of BYTES_A_SECOND is not read for a moment;
then his pipe fills, he waits, and the processors are for others.
"""

import time

from ...proto import limits

BYTES_A_SECOND = 256 * limits.MIB
BURST_BYTES = 8 * limits.MIB
"""Read at once of those who were quiet before."""

NAP_S_MIN = 0.002
"""A shorter rest is not worth its trouble: it is added to the next."""


class Pace:
    """See the module."""

    def __init__(self) -> None:
        self._even_s = 0.0
        """When all that was read would have come at that pace."""

    def nap_s(self, count: int) -> float:
        """So many bytes were read of a stream: how long it is not to be read now, mostly 0."""
        now_s = time.monotonic()
        self._even_s = max(self._even_s, now_s - BURST_BYTES / BYTES_A_SECOND) + count / BYTES_A_SECOND
        nap_s = self._even_s - now_s
        return nap_s if nap_s >= NAP_S_MIN else 0.0


OF_THIS_PROCESS = Pace()
