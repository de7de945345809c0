"""A worker's connection to the broker: one socket, and what is owed over it.

An answer (ack, nack, release) is kept until the broker has confirmed it, and is sent again after
every reconnect, so neither a restart of the broker nor a lost connection loses it. `hello` says what
the worker holds: `finished` (its answer follows at once), `running`, `unstarted`.

States: closed, or open (hello was answered). Every fault of the socket or the peer closes it, at
whatever call it shows; the caller then calls `open` again, with a backoff of its own. What is never
thrown away by a close: unconfirmed answers, and jobs that came and were not started. (The broker
takes the latter back when it is told of them.)

No heartbeats from here: a worker with one slot that had time for one would hold no lease, and for many
slots one voice is enough. The supervisor beats for it.

The socket is a blocking one, and `open` does it all. A worker with a loop has one that never blocks
(`waits=False`): it waits for the descriptor itself, and opens in steps, `begin`, `receive` until
`is_welcomed`, `finish`. What the socket does not take then stays in `unsent` until `flush`.

Not to be entered twice: the worker sees to it that its signal handlers call `open` only while the
main program is outside of this file.
"""

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from ..proto import codec, limits, work
from ..proto.errors import RemoteProtocolError, StokerError
from ..proto.frames import FrameReader
from ..proto.messages import ANSWER, ERROR, OPS, Hello, Welcome
from . import log
from .startpage import Token

Answer = work.Ack | work.Nack | work.Release

HELLO_MS = 5000
"""A broker that recovers a large journal listens only afterwards, so a good one answers at once."""

_NUMBERS = {cls: number for cls, (number, _) in (OPS | work.OPS).items()}
_JOB = _NUMBERS[work.Job]
_STREAM = _NUMBERS[work.Stream]
_JOB_FIELDS = len(work.Job._fields)

_UNANSWERED = limits.INTEGER_MAX
"""A request id that counting never comes to: should it be refused, nothing that is owed has this number."""

_PASSING = frozenset({"shutting_down", "internal", "too_many_connections", "handshake_timeout"})
"""Refusals that say nothing about the request: it is repeated on the next connection."""


class HelloRefusedError(StokerError):
    """The broker will not have this worker; another try would change nothing."""


class Link:
    """See the module. `greeting` gives the `hello` for what is held."""

    def __init__(
        self, path: str, greeting: Callable[[list[list[Any]]], Hello], *, waits: bool = True
    ) -> None:
        self.jobs: deque[work.Job] = deque()
        """Came, and not started."""
        self.generation = 0
        """Grows with every open: a new descriptor is to be polled."""
        self.unsent = b""
        """What a socket that never blocks has yet to take."""
        self.confirmed: Callable[[Token], None] = lambda _: None
        """Called with the token of an answer that is owed no longer."""
        self.streamed: Callable[[Token, str], None] = lambda token, policy: None
        """Called when somebody follows an attempt, with what becomes of output that is not taken."""
        self.closing: Callable[[socket.socket], object] = lambda _: None
        """Called with a connection that is about to be closed."""
        self._waits = waits
        self._path = path
        self._greeting = greeting
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._number = 0
        self._unconfirmed: dict[int, Answer] = {}
        self._asked: dict[int, Callable[[list[Any] | None], None]] = {}
        self._hello = 0
        self._refusal: HelloRefusedError | None = None
        self._lost: list[Token] | None = None
        self._given_back: deque[work.Job] = deque()

    # --- connection ----------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def owes(self) -> bool:
        """Answers are not confirmed yet."""
        return bool(self._unconfirmed)

    def fileno(self) -> int:
        """Of an open connection."""
        assert self._socket is not None
        return self._socket.fileno()

    def is_dead(self) -> bool:
        """Closed, or closed by the other end. What has come and was not read stays unread."""
        if self._socket is None:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    def open(self, running: Collection[Token] = ()) -> bool:
        """Try once: connect, say hello, repeat what is owed. HelloRefusedError if it is hopeless."""
        if self.begin(running):
            self._wait_for_welcome()
        return self.finish()

    def begin(self, running: Collection[Token] = ()) -> bool:
        """Connect and say hello; False if nobody listens."""
        self.close()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(self._waits)
        try:
            sock.connect(self._path)
        except OSError:
            sock.close()
            return False
        self._socket, self._reader, self.unsent = sock, FrameReader(), b""
        self._lost = None
        self._given_back, self.jobs = self.jobs, deque()
        self._hello = self._send(self._greeting(self._held(self._given_back, running)))
        return self.is_open

    @property
    def is_welcomed(self) -> bool:
        """Hello was answered. HelloRefusedError if it was refused for good."""
        if self._refusal is not None:
            self.close()
            raise self._refusal
        return self._lost is not None

    def finish(self) -> bool:
        """Repeat what is owed if hello was answered in time; else take back what was given back."""
        given_back, self._given_back = self._given_back, deque()
        if not (self.is_open and self.is_welcomed):
            self.jobs = given_back + self.jobs
            self.close()
            return False
        self.generation += 1
        self._repeat()
        return self.is_open

    def close(self) -> None:
        """Harmless twice."""
        sock, self._socket = self._socket, None
        self._asked.clear()
        if sock is not None:
            # A handler may have closed the descriptor, which makes all of this fail.
            with suppress(OSError, ValueError):
                self.closing(sock)
                sock.close()

    def _held(self, unstarted: Iterable[work.Job], running: Iterable[Token]) -> list[list[Any]]:
        held = [[*answer.token, "finished"] for answer in self._unconfirmed.values()]
        held += [[*job.token, "unstarted"] for job in unstarted]
        return [*held, *([*token, "running"] for token in running)]

    def _wait_for_welcome(self) -> None:
        end = time.monotonic() + HELLO_MS / 1000
        poll = select.poll()
        if self._socket is not None:
            poll.register(self._socket, select.POLLIN)
        while self.is_open and not self.is_welcomed:
            if not poll.poll(max(0, end - time.monotonic()) * 1000):
                return
            self.receive()

    def _repeat(self) -> None:
        """Send again what was not confirmed, but for the tokens that are no longer this worker's."""
        lost = set(self._lost or ())
        owed, self._unconfirmed = list(self._unconfirmed.values()), {}
        for answer in owed:
            if _key(answer.token) in lost:
                self.confirmed(_key(answer.token))
            else:
                self.answer(answer)

    # --- sending -------------------------------------------------------------------------------------

    def answer(self, answer: Answer) -> None:
        """Send the end of an attempt, now or after the next open, until it is confirmed."""
        number = self._send(answer)
        self._unconfirmed[number] = answer

    def ask(self, message: Any, answered: Callable[[list[Any] | None], None]) -> None:
        """Send something that is not repeated if the connection ends. `answered` gets the fields of its answer, None if
        it was refused. Without a connection nothing happens."""
        if self._lost is not None and self.is_open:
            number = self._send(message)
            if self.is_open:
                self._asked[number] = answered

    def say(self, message: Any) -> None:
        """Send something that nobody answers, now or not at all. From any thread, also within a handler.

        It is one write of one short frame, which a socket takes whole or refuses. Not before hello was
        answered, nor while a frame is half sent: it must not get into the middle of another one.
        """
        sock = self._socket
        if sock is not None and self._lost is not None and not self.unsent:
            with suppress(OSError):
                sock.send(codec.encode((_NUMBERS[type(message)], _UNANSWERED, *message)), socket.MSG_DONTWAIT)

    def _send(self, message: Any) -> int:
        self._number = number = self._number + 1
        if self._socket is not None:
            try:
                self._transmit(self._socket, codec.encode((_NUMBERS[type(message)], number, *message)))
            except OSError:
                # After part of a frame nothing more can be said on this connection.
                self.close()
        return number

    def _transmit(self, sock: socket.socket, data: bytes) -> None:
        if self._waits:
            sock.sendall(data)
        else:
            self.unsent += data
            self._flush(sock)

    def flush(self) -> None:
        """Send what the socket takes now of what is unsent."""
        if self._socket is not None:
            try:
                self._flush(self._socket)
            except OSError:
                self.close()

    def _flush(self, sock: socket.socket) -> None:
        try:
            self.unsent = self.unsent[sock.send(self.unsent) :] if self.unsent else b""
        except BlockingIOError:
            return

    # --- receiving -----------------------------------------------------------------------------------

    def receive(self) -> None:
        """Read what has come, and act on every whole frame. A blocking socket waits for something to come."""
        if self._socket is None:
            return
        try:
            data = self._socket.recv(limits.READ_BYTES)
            self._reader.feed(data)
            while (body := self._reader.next_frame()) is not None:
                self._take(codec.decode(body))
        except BlockingIOError:
            return
        except OSError:
            self.close()
        except (RemoteProtocolError, TypeError, ValueError) as error:
            log.say("worker_link_broken", error=error)
            self.close()
        else:
            if not data:
                self.close()

    def _take(self, fields: list[Any]) -> None:
        op, number = fields[0], fields[1]
        if op == ANSWER:
            answer = self._unconfirmed.pop(number, None)
            if answer is not None:
                self.confirmed(_key(answer.token))
            elif number == self._hello:
                welcome = Welcome(*fields[2 : 2 + len(Welcome._fields)])
                self._lost = [_key(token) for token in welcome.lost]
            elif (answered := self._asked.pop(number, None)) is not None:
                answered(fields[2:])
        elif op == _JOB:
            self.jobs.append(work.Job(*fields[2 : 2 + _JOB_FIELDS]))
        elif op == _STREAM:
            self.streamed(_key(fields[2]), fields[3])
        elif op == ERROR:
            self._take_refusal(number, fields[2], fields[3])

    def _take_refusal(self, number: int, code: str, message: str) -> None:
        if code in _PASSING or number == 0:
            self.close()
            return
        if number == self._hello:
            self._refusal = HelloRefusedError(f"{code}: {message}")
            return
        answer = self._unconfirmed.pop(number, None)
        if answer is None:
            if (answered := self._asked.pop(number, None)) is not None:
                answered(None)
            return
        if code == "lease_lost":
            # Another attempt has the job by now, or nobody: either way this one is over.
            self.confirmed(_key(answer.token))
            return
        log.say("worker_answer_refused", code=code, message=message)
        if not isinstance(answer, work.Release):
            # The attempt must end somehow, or its lease would be renewed until its time limit.
            self.answer(work.Release(answer.token, "released"))
        else:
            self.confirmed(_key(answer.token))


def _key(token: Any) -> Token:
    return (token[0], token[1])
