"""A worker without a supervisor, as somebody might write one from the protocol's page alone.

One slot, one thread: it beats while it runs a job, acks it, and notes what it is answered. It is careless:
when it has been away for longer than its lease it neither knows nor asks, and acks all the same. Nobody can
end it; only its token, which no longer counts, keeps it from doing harm.
"""

import os
import secrets
import select
import socket
import sys
import time
from pathlib import Path

from stoker.client.session import Answered, Ended, Pushed, Refused, Session
from stoker.client.values import decode_value
from stoker.proto import limits, messages, work
from stoker.worker.process import identity

from .notebook import Notebook

BEAT_S = 0.1
AWAY_S = 0.3
"""Longer than its loop ever takes: it was stopped."""

KIND = "raw"

_OPS = messages.OPS | {cls: op for cls, op in work.OPS.items() if op[1] is not None}
_PUSHES = {number: cls for cls, (number, answer) in work.OPS.items() if answer is None}


def name_of(pid: int) -> str:
    """What it is called in notes."""
    return f"raw/{pid}"


class RawWorker:
    """One life of it."""

    def __init__(self, path: str, notebook: Notebook) -> None:
        self._notebook = notebook
        self._name = name_of(os.getpid())
        self._session = Session(_OPS, _PUSHES)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._acks: dict[int, messages.Token] = {}
        self._job: work.Job | None = None
        self._until = 0.0

    def run(self) -> None:
        """Until the broker closes."""
        who = list(identity(secrets.token_hex(8)))
        hello = messages.Hello(limits.PROTOCOL_VERSION, "work", self._name, who, b"", [KIND], 1)
        self._say(hello)
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        looked = time.monotonic()
        while not self._has_ended():
            if time.monotonic() - looked > AWAY_S:
                # Only now: what was sent to it meanwhile had a silent worker.
                self._notebook.note("heard", self._name)
            looked = time.monotonic()
            poll.poll(BEAT_S * 1000)
            if self._job is not None and time.monotonic() >= self._until:
                self._finish(self._job)
            elif self._job is not None:
                self._say(work.Heartbeat(tokens=[self._job.token]))

    def _say(self, message: messages.Message) -> int:
        number, data = self._session.request(message)
        self._socket.sendall(data)
        return number

    def _has_ended(self) -> bool:
        """Take in what has come."""
        try:
            data = self._socket.recv(limits.READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        self._session.receive_data(data)
        while (event := self._session.next_event()) is not None:
            if isinstance(event, Ended):
                return True
            if isinstance(event, Pushed) and isinstance(event.message, work.Job):
                self._begin(event.message)
            elif isinstance(event, Answered) and event.request in self._acks:
                self._notebook.note("confirmed", self._name, self._acks[event.request], "ack")
            elif isinstance(event, Refused) and event.request in self._acks:
                self._notebook.note("refused", self._name, self._acks[event.request], event.error.code)
        return not data

    def _begin(self, job: work.Job) -> None:
        (ms, _), _ = decode_value(job.payload)
        self._notebook.note("raw start", job.id, list(job.token), self._name, job.attempt)
        self._job, self._until = job, time.monotonic() + ms / 1000

    def _finish(self, job: work.Job) -> None:
        self._job = None
        self._notebook.note("stop", list(job.token))
        self._notebook.note("reached", self._name, list(job.token), "ack")
        number = self._say(work.Ack(job.token))
        self._acks[number] = list(job.token)


def main() -> None:
    """Arguments: socket, notebook."""
    path, notebook = sys.argv[1:]
    RawWorker(path, Notebook(Path(notebook))).run()
