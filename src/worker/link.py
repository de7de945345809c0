"""A worker's connection to the broker: one blocking socket, and what is owed over it.

An answer (ack, nack, release) is kept until the broker has confirmed it, and is sent again after
every reconnect, so neither a restart of the broker nor a lost connection loses it. `hello` says what
the worker holds: `finished` (its answer follows at once), `running`, `unstarted`.

States: closed, or open (hello was answered). Every fault of the socket or the peer closes it, at
whatever call it shows; the caller then calls `open` again, with a backoff of its own. What is never
thrown away by a close: unconfirmed answers, and jobs that came and were not started. (The broker
takes the latter back when it is told of them.)

No heartbeats from here: one slot means that a worker with time for one holds no lease. The supervisor
beats for it.

Not to be entered twice: the worker sees to it that its signal handlers call `open` only while the
main program is outside of this file.
"""

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
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
_JOB_FIELDS = len(work.Job._fields)

_PASSING = frozenset({"shutting_down", "internal", "too_many_connections", "handshake_timeout"})
"""Refusals that say nothing about the request: it is repeated on the next connection."""


class HelloRefusedError(StokerError):
    """The broker will not have this worker; another try would change nothing."""


class Link:
    """See the module. `greeting` gives the `hello` for what is held."""

    def __init__(self, path: str, greeting: Callable[[list[list[Any]]], Hello]) -> None:
        self.jobs: deque[work.Job] = deque()
        """Came, and not started."""
        self.generation = 0
        """Grows with every open: a new descriptor is to be polled."""
        self._path = path
        self._greeting = greeting
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._number = 0
        self._unconfirmed: dict[int, Answer] = {}
        self._hello = 0
        self._refusal: HelloRefusedError | None = None
        self._lost: list[Token] | None = None

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

    def open(self, running: Token | None = None) -> bool:
        """Try once: connect, say hello, repeat what is owed. HelloRefusedError if it is hopeless."""
        self.close()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(self._path)
        except OSError:
            sock.close()
            return False
        self._socket, self._reader = sock, FrameReader()
        self._lost = None
        unstarted, self.jobs = self.jobs, deque()
        self._hello = self._send(self._greeting(self._held(unstarted, running)))
        if not self._wait_for_welcome():
            self.jobs = unstarted + self.jobs
            self.close()
            return False
        self.generation += 1
        self._repeat()
        return self.is_open

    def close(self) -> None:
        """Harmless twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _held(self, unstarted: Iterable[work.Job], running: Token | None) -> list[list[Any]]:
        held = [[*answer.token, "finished"] for answer in self._unconfirmed.values()]
        held += [[*job.token, "unstarted"] for job in unstarted]
        return held if running is None else [*held, [*running, "running"]]

    def _wait_for_welcome(self) -> bool:
        end = time.monotonic() + HELLO_MS / 1000
        poll = select.poll()
        if self._socket is not None:
            poll.register(self._socket, select.POLLIN)
        while self._socket is not None and self._lost is None:
            if not poll.poll(max(0, end - time.monotonic()) * 1000):
                return False
            self.receive()
            if self._refusal is not None:
                self.close()
                raise self._refusal
        return self._socket is not None

    def _repeat(self) -> None:
        """Send again what was not confirmed, but for the tokens that are no longer this worker's."""
        lost = set(self._lost or ())
        owed = [answer for answer in self._unconfirmed.values() if _key(answer.token) not in lost]
        self._unconfirmed.clear()
        for answer in owed:
            self.answer(answer)

    # --- sending -------------------------------------------------------------------------------------

    def answer(self, answer: Answer) -> None:
        """Send the end of an attempt, now or after the next open, until it is confirmed."""
        number = self._send(answer)
        self._unconfirmed[number] = answer

    def _send(self, message: Any) -> int:
        self._number = number = self._number + 1
        if self._socket is not None:
            try:
                self._socket.sendall(codec.encode((_NUMBERS[type(message)], number, *message)))
            except OSError:
                # After part of a frame nothing more can be said on this connection.
                self.close()
        return number

    # --- receiving -----------------------------------------------------------------------------------

    def receive(self) -> None:
        """Read what has come, waiting for it if there is nothing, and act on every whole frame."""
        if self._socket is None:
            return
        try:
            data = self._socket.recv(limits.READ_BYTES)
            self._reader.feed(data)
            while (body := self._reader.next_frame()) is not None:
                self._take(codec.decode(body))
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
            if self._unconfirmed.pop(number, None) is None and number == self._hello:
                welcome = Welcome(*fields[2 : 2 + len(Welcome._fields)])
                self._lost = [_key(token) for token in welcome.lost]
        elif op == _JOB:
            self.jobs.append(work.Job(*fields[2 : 2 + _JOB_FIELDS]))
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
        if answer is None or code == "lease_lost":
            # Another attempt has the job by now, or nobody: either way this one is over.
            return
        log.say("worker_answer_refused", code=code, message=message)
        if not isinstance(answer, work.Release):
            # The attempt must end somehow, or its lease would be renewed until its time limit.
            self.answer(work.Release(answer.token, "released"))


def _key(token: Any) -> Token:
    return (token[0], token[1])
