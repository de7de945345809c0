"""What a program says, with a broker that does as a test says: takes chunks, or lets them wait."""

from collections.abc import Callable

from stoker.proto import messages, work
from stoker.worker.commands.live import LiveOutput
from stoker.worker.startpage import Token

TOKEN: Token = (1, 7)


class Audience:
    """Followers of one attempt: chunks that came and were not answered, and what is to happen later."""

    def __init__(self, policy: str | None = None) -> None:
        self.waiting: list[tuple[work.Output, Callable[[bool], None]]] = []
        self.taken: dict[int, bytes] = {messages.STDOUT: b"", messages.STDERR: b""}
        self.offsets: list[tuple[int, int]] = []
        self.later: list[Callable[[], None]] = []
        self.live = LiveOutput(TOKEN, policy, self._ask, lambda _, call: self.later.append(call))

    def _ask(self, output: work.Output, answered: Callable[[bool], None]) -> None:
        self.waiting.append((output, answered))

    def take(self) -> None:
        """All that waits, and answer it; what is sent then waits."""
        waiting, self.waiting = self.waiting, []
        for output, answered in waiting:
            self.taken[output.stream] += output.data
            self.offsets.append((output.stream, output.offset))
            answered(True)

    def take_all(self) -> None:
        """Until nothing waits."""
        while self.waiting:
            self.take()

    def lose(self) -> None:
        """The connection ends, and there is another."""
        self.waiting.clear()
        self.live.disconnected()
        self.live.connected()

    def leave(self) -> None:
        """Nobody follows any more."""
        waiting, self.waiting = self.waiting, []
        for _, answered in waiting:
            answered(False)


def unfollowed() -> LiveOutput:
    """Nobody follows."""
    return Audience().live
