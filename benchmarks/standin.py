"""A broker without any feature: what durable jobs cost on this machine if nothing else is asked for.

One epoll loop, the jobs in one deque, and one SQLite connection with the settings of stoker's journal.
Everything that a round of the loop brought is one transaction, committed inline; answers, and jobs for
idle workers, leave after it. Workers are forked at the start, before anything is open; each takes a job
and says that it is done.

No ids, leases, limits, checks, nor any way back after an error. It is a yardstick, and must not become
a second broker: whatever is added here makes a figure of stoker's look better than it is.

A frame is 4 bytes of length and a msgpack array that begins with an op. Enqueue, unfinished and started
are answered, in order, so nothing is numbered.
"""

import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import apsw
import msgpack

ENQUEUE, UNFINISHED, STARTED, READY, DONE = range(5)
"""The ops. A worker says READY once, and DONE with the job and the instant at which it began."""

WAITING, LEASED, FINISHED = range(3)

READ_BYTES = 256 * 1024

SETUP = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE jobs (number INTEGER PRIMARY KEY, state INTEGER NOT NULL, payload BLOB NOT NULL);
"""


def packed(*values: Any) -> bytes:
    """One frame."""
    body: bytes = msgpack.packb(values)
    return len(body).to_bytes(4, "big") + body


class Stream:
    """A connection, and what was read beyond the last whole frame."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.outgoing: list[bytes] = []
        self._rest = b""

    def receive(self) -> list[list[Any]]:
        """Every frame that one read makes whole, perhaps none. EOFError at the end."""
        read = self.socket.recv(READ_BYTES)
        if not read:
            raise EOFError
        data, frames, start = self._rest + read, list[list[Any]](), 4
        while start <= len(data):
            end = start + int.from_bytes(data[start - 4 : start], "big")
            if end > len(data):
                break
            frames.append(msgpack.unpackb(data[start:end]))
            start = end + 4
        self._rest = data[start - 4 :]
        return frames

    def send(self) -> None:
        """All that is to go out. A peer never has more on its way than a socket takes, so this never waits."""
        data, self.outgoing = b"".join(self.outgoing), []
        self.socket.sendall(data)


def connect(path: str) -> Stream:
    """A connection to the stand-in at a path."""
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(path)
    return Stream(connected)


class Broker:
    """See the module."""

    def __init__(self, listener: socket.socket, database: str) -> None:
        self._listener = listener
        # The stubs of apsw name a buffer type that Python 3.11 does not have.
        self._database: Any = apsw.Connection(database)
        self._database.execute(SETUP).fetchall()
        self._epoll = select.epoll()
        self._epoll.register(listener, select.EPOLLIN)
        self._streams: dict[int, Stream] = {}
        self._jobs: deque[tuple[int, bytes]] = deque()
        self._idle: deque[Stream] = deque()
        self._number = self._unfinished = 0
        self._started_ns: dict[int, int] = {}
        self._new: list[tuple[int, int, bytes]] = []
        self._changed: list[tuple[int, int]] = []

    def round(self) -> None:
        """Wait until somebody is ready, and handle everybody who is."""
        touched: list[Stream] = []
        for descriptor, _ in self._epoll.poll():
            if descriptor == self._listener.fileno():
                self._accept()
            elif (stream := self._read(descriptor)) is not None:
                touched.append(stream)
        touched += self._hand_out()
        self._commit()
        for stream in touched:
            if stream.outgoing:
                stream.send()

    def _accept(self) -> None:
        connected, _ = self._listener.accept()
        self._streams[connected.fileno()] = Stream(connected)
        self._epoll.register(connected, select.EPOLLIN)

    def _read(self, descriptor: int) -> Stream | None:
        stream = self._streams[descriptor]
        try:
            frames = stream.receive()
        except (EOFError, ConnectionError):
            self._epoll.unregister(descriptor)
            self._streams.pop(descriptor).socket.close()
            return None
        for op, *fields in frames:
            self._handle(stream, op, fields)
        return stream

    def _handle(self, stream: Stream, op: int, fields: list[Any]) -> None:
        if op == ENQUEUE:
            self._number += 1
            self._unfinished += 1
            self._new.append((self._number, WAITING, fields[0]))
            self._jobs.append((self._number, fields[0]))
            stream.outgoing.append(packed(self._number))
        elif op == DONE:
            number, self._started_ns[number] = fields
            self._unfinished -= 1
            self._changed.append((FINISHED, number))
            self._idle.append(stream)
        elif op == READY:
            self._idle.append(stream)
        else:
            stream.outgoing.append(
                packed(self._unfinished if op == UNFINISHED else self._started_ns[fields[0]])
            )

    def _hand_out(self) -> Iterable[Stream]:
        while self._jobs and self._idle:
            number, payload = self._jobs.popleft()
            self._changed.append((LEASED, number))
            stream = self._idle.popleft()
            stream.outgoing.append(packed(number, payload))
            yield stream

    def _commit(self) -> None:
        if self._new or self._changed:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany("INSERT INTO jobs VALUES (?, ?, ?)", self._new)
            self._database.executemany("UPDATE jobs SET state = ? WHERE number = ?", self._changed)
            self._database.execute("COMMIT")
            self._new, self._changed = [], []


def work(path: str) -> None:
    """Take jobs and say that they are done, until the broker is gone."""
    stream = connect(path)
    stream.socket.sendall(packed(READY))
    while True:
        for number, _ in stream.receive():
            stream.socket.sendall(packed(DONE, number, time.monotonic_ns()))


def main(path: str, database: str, workers: int) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    for _ in range(workers):
        if os.fork() == 0:
            listener.close()
            try:
                work(path)
            finally:
                os._exit(0)
    broker = Broker(listener, database)
    while True:
        broker.round()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
