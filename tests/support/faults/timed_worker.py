"""A worker that does only what it is told, and knows to the millisecond when each job came.

For what has to be on time. It has no supervisor and never beats by itself.
"""

import select
import socket
import time
from collections import deque
from types import TracebackType
from typing import Any, NamedTuple, Self

from stoker.client.session import Answered, Ended, Pushed, Refused, Session
from stoker.proto import limits, messages, work
from stoker.proto.messages import Message

OPS = messages.OPS | {cls: op for cls, op in work.OPS.items() if op[1] is not None}
PUSHES = {number: cls for cls, (number, answer) in work.OPS.items() if answer is None}

ANSWER_S = 10.0


class Came(NamedTuple):
    """A job and when it came, on the monotonic clock."""

    job: work.Job
    at_s: float


class TimedWorker:
    """One connection; use as a context manager."""

    def __init__(self, path: str, kinds: list[str], slots: int) -> None:
        self._session = Session(OPS, PUSHES)
        self._answers: dict[int, Message | str] = {}
        self._came: deque[Came] = deque()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self.ask(messages.Hello(limits.PROTOCOL_VERSION, "work", "timed", [], b"", kinds, slots))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, message: Any) -> Message | str:
        """The answer, or the code of the refusal."""
        number, data = self._session.request(message)
        self._socket.sendall(data)
        until_s = time.monotonic() + ANSWER_S
        while number not in self._answers:
            assert self._listen(until_s), f"no answer to {type(message).__name__} in {ANSWER_S} s"
        return self._answers.pop(number)

    def tell(self, message: Any) -> None:
        """Send it, and care for no answer."""
        number, data = self._session.request(message)
        self._session.forget(number)
        self._socket.sendall(data)

    def wait(self, for_s: float) -> Came | None:
        """The next job; None if none comes in that time."""
        until_s = time.monotonic() + for_s
        while not self._came:
            if not self._listen(until_s):
                return None
        return self._came.popleft()

    def pause(self, for_s: float) -> None:
        """Let time pass, and keep what comes meanwhile."""
        until_s = time.monotonic() + for_s
        while self._listen(until_s):
            continue

    def _listen(self, until_s: float) -> bool:
        """Take in what has come; False when the time is over."""
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not select.select([self._socket], [], [], left_s)[0]:
            return False
        at_s = time.monotonic()
        data = self._socket.recv(limits.READ_BYTES)
        assert data, "the broker ended the connection"
        self._session.receive_data(data)
        while (event := self._session.next_event()) is not None:
            if isinstance(event, Pushed) and isinstance(event.message, work.Job):
                self._came.append(Came(event.message, at_s))
            elif isinstance(event, Answered):
                self._answers[event.request] = event.message
            elif isinstance(event, Refused):
                self._answers[event.request] = event.error.code
            else:
                assert not isinstance(event, Ended), event.error
        return True
