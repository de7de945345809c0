"""How late a task is that wants the loop every few milliseconds."""

import time

import anyio

EACH_S = 0.005


class Lateness:
    """`run` beside whatever is to leave the loop to others."""

    def __init__(self) -> None:
        self._late_s: list[float] = []

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            due_s = time.monotonic() + EACH_S
            await anyio.sleep(EACH_S)
            self._late_s.append(time.monotonic() - due_s)

    @property
    def count(self) -> int:
        """How often it had its turn."""
        return len(self._late_s)

    @property
    def p99_s(self) -> float:
        """Of so many turns that there is one."""
        assert self.count >= 20, f"it had {self.count} turns"
        return sorted(self._late_s)[len(self._late_s) * 99 // 100]
