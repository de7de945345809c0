"""A broker that does as a test says: real socket, real frames, scripted answers.

The script is called for each request, in a thread of its connection, and returns the answer, a
`Refusal`, or one of the endings below. What came is in `requests`, with the number of its connection.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from stoker.proto import codec, messages, ops
from stoker.proto.frames import FrameReader
from stoker.proto.messages import Message, Refusal


class Hang:
    """No answer to this request; the connection stays open."""


class Close:
    """Close the connection instead of answering."""


class Raw(NamedTuple):
    """Answer with these bytes, whatever they are."""

    data: bytes


class Drip(NamedTuple):
    """Answer with these bytes, one at a time and slowly."""

    data: bytes
    interval_s: float


class Request(NamedTuple):
    connection: int
    message: Any
    number: int


Script = Callable[[Request], Message | Hang | Close | Raw | Drip]


def answer_frame(number: int, message: Message) -> bytes:
    """The frame of an answer or a refusal."""
    op = messages.ERROR if isinstance(message, Refusal) else messages.ANSWER
    return codec.encode([op, number, *message])


class ScriptedBroker:
    """Listens at `path` from when it is made until `close`."""

    def __init__(self, path: str, script: Script) -> None:
        self.path = path
        self.requests: list[Request] = []
        self.connection_count = 0
        self.open_count = 0
        self._script = script
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(64)
        self._start(self._accept)

    def messages(self, kind: type[Any]) -> list[Any]:
        """Every message of one class, in the order of arrival."""
        with self._lock:
            return [request.message for request in self.requests if isinstance(request.message, kind)]

    def close_connections(self) -> None:
        """As a broker that was killed: every connection ends, the listener stays."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for sock in sockets:
            _shut(sock)

    def close(self) -> None:
        """Stop listening, end every connection, and wait for the threads."""
        _shut(self._listener)
        self._threads[0].join(10)
        self.close_connections()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        self._listener.close()
        if os.path.exists(self.path):
            os.unlink(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connection_count += 1
                self.open_count += 1
                self._sockets.append(sock)
                number = self.connection_count
            self._start(self._serve_until_end, sock, number)

    def _serve(self, sock: socket.socket, connection: int) -> None:
        reader = FrameReader()
        with sock, contextlib.suppress(OSError):
            while data := sock.recv(65536):
                reader.feed(data)
                while (body := reader.next_frame()) is not None:
                    if not self._handle(sock, connection, body):
                        return

    def _serve_until_end(self, sock: socket.socket, connection: int) -> None:
        self._serve(sock, connection)
        with self._lock:
            self.open_count -= 1

    def _handle(self, sock: socket.socket, connection: int, body: bytes) -> bool:
        fields = codec.decode(body)
        op = ops.BY_NUMBER[fields[0]]
        request = Request(connection, ops.build(op, fields[2:]), fields[1])
        with self._lock:
            self.requests.append(request)
        reply = self._script(request)
        if isinstance(reply, Close):
            return False
        if isinstance(reply, Raw):
            sock.sendall(reply.data)
        elif isinstance(reply, Drip):
            for at in range(len(reply.data)):
                sock.sendall(reply.data[at : at + 1])
                threading.Event().wait(reply.interval_s)
        elif not isinstance(reply, Hang):
            sock.sendall(answer_frame(request.number, reply))
        return True


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # The peer may have been faster.
        sock.shutdown(socket.SHUT_RDWR)


def stores_everything(request: Request) -> Message:
    """A script for enqueues: the same id gives the same number."""
    message = request.message
    assert isinstance(message, messages.Enqueue)
    return messages.Enqueued(message.id, int.from_bytes(message.id.encode()[-6:], "big") % 2**40)
