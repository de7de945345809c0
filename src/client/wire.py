"""One blocking connection to the broker: a plain socket and its session, used by one thread at a time.

It answers one question that its caller cannot: had the whole request left when the connection
failed? A frame that is not whole is never executed, so `sent` False means that nothing happened and
any request may be repeated; `sent` True means that nobody here can know.

A wire whose answer did not come in time is closed by its owner and never used again, so no later
request can be given an answer that is not its own. Nor is it ever used by another process than the
one that opened it: a forked child would take the parent's answers.
"""

import os
import socket
import struct
from time import monotonic
from typing import Any

from ..proto import limits
from ..proto.errors import LocalProtocolError, StokerError
from ..proto.messages import Message
from .connecting import absence, check_peer, why
from .request import ConnectionLost
from .session import Answered, Ended, Pushed, Refused, Session


class Wire:
    """See the module. Opening one raises BrokerUnreachableError; nothing was sent then."""

    __slots__ = ("_pid", "_session", "_socket", "_timeouts", "path")

    def __init__(self, path: str, timeout_s: float | None) -> None:
        self.path = path
        self._pid = os.getpid()
        self._session = Session()
        self._timeouts: dict[int, float | None] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._connect(timeout_s)
            check_peer(self._socket, path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close this process's descriptor. No `shutdown`: a child must not end its parent's connection."""
        self._socket.close()

    def exchange(self, message: Message, timeout_s: float | None) -> Any:
        """One request, one answer. After a RefusedError the wire is usable, after anything else not."""
        self.send(message, timeout_s)
        answer = self.receive(timeout_s)
        if isinstance(answer, Refused):
            raise answer.error
        return answer.message

    def send(self, message: Message, timeout_s: float | None) -> int:
        """Send one request, whole; its number. ConnectionLost with `sent` False if it did not leave."""
        number, data = self.request(message)
        self.write(data, timeout_s)
        return number

    def request(self, message: Message) -> tuple[int, bytes]:
        """The number and the bytes of a request that `write` is to send, perhaps with others."""
        return self._session.request(message)

    def write(self, data: bytes, timeout_s: float | None) -> None:
        """Send bytes of `request`. ConnectionLost with `sent` False if they did not all leave."""
        if os.getpid() != self._pid:
            raise LocalProtocolError(f"this connection belongs to process {self._pid}, which forked this one")
        self._set_timeout(socket.SO_SNDTIMEO, timeout_s)
        try:
            self._socket.sendall(data, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            raise ConnectionLost("the broker does not read", sent=False, overdue=True) from None
        except OSError as error:
            raise ConnectionLost(why(error), sent=False, error=self._last_words()) from error

    def receive(self, timeout_s: float | None) -> Answered | Refused:
        """The next answer, of whichever request. ConnectionLost with `sent` True if none comes."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        remaining = timeout_s
        while True:
            answer = self.waiting()
            if answer is not None:
                return answer
            self._read(remaining)
            if deadline is not None:
                remaining = deadline - monotonic()

    def waiting(self) -> Answered | Refused | None:
        """An answer that was read already, or None. Never reads."""
        event = self._session.next_event()
        if isinstance(event, Ended):
            raise ConnectionLost(str(event.error or "it was closed"), sent=True, error=event.error)
        # A session that was told of no pushes gives none.
        assert not isinstance(event, Pushed)
        return event

    def _read(self, timeout_s: float | None) -> None:
        # Of whoever was stopped meanwhile time is up, and the answer there all the same.
        is_up = timeout_s is not None and timeout_s <= 0
        if not is_up:
            self._set_timeout(socket.SO_RCVTIMEO, timeout_s)
        try:
            data = self._socket.recv(limits.READ_BYTES, socket.MSG_DONTWAIT if is_up else 0)
        except BlockingIOError:
            raise ConnectionLost("no answer in time", sent=True, overdue=True) from None
        except OSError as error:
            raise ConnectionLost(why(error), sent=True) from error
        if data:
            self._session.receive_data(data)
        else:
            self._session.receive_eof()

    def _last_words(self) -> StokerError | None:
        """Why the broker closed, if it said so: what it sent before is still there to be read."""
        try:
            self._session.receive_data(self._socket.recv(limits.READ_BYTES, socket.MSG_DONTWAIT))
        except OSError:
            return None
        event = self._session.next_event()
        return event.error if type(event) is Ended else None

    def _connect(self, timeout_s: float | None) -> None:
        # A kernel timeout rather than Python's: with the latter the socket is non-blocking, and a
        # full backlog fails at once instead of waiting for its turn.
        self._set_timeout(socket.SO_SNDTIMEO, timeout_s)
        try:
            self._socket.connect(self.path)
        except OSError as error:
            raise absence(self.path, error) from None

    def _set_timeout(self, option: int, timeout_s: float | None) -> None:
        if self._timeouts.get(option) == timeout_s:
            return
        self._socket.setsockopt(socket.SOL_SOCKET, option, _timeval(timeout_s))
        self._timeouts[option] = timeout_s


def _timeval(timeout_s: float | None) -> bytes:
    """A `struct timeval`. All zero means for ever, so the shortest timeout is a microsecond."""
    microseconds = 0 if timeout_s is None else max(1, round(timeout_s * 1_000_000))
    return struct.pack("@ll", *divmod(microseconds, 1_000_000))
