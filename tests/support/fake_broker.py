"""A scripted broker for tests of the pool: the real socket and frames, none of the rules.

It hands each job once to a worker with a free slot, writes down every answer and report, and pushes
what a test tells it to. `stop` and `start` are a restart: leases are remembered, connections are not.
"""

import fcntl
import os
import socket
import termios
import threading
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import msgpack
from support.waiting import wait_until

from stoker.proto import codec, limits, messages, ops, work
from stoker.proto.frames import FrameReader
from stoker.worker import process

Sent = tuple[str, Any]
"""What the broker got: the op's name and its message."""


class Peer:
    """One accepted connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.hello: messages.Hello | None = None
        self.pool: work.Pool | None = None
        self.is_busy = False

    @property
    def nonce(self) -> str:
        return str(self.hello.identity[4]) if self.hello is not None else ""

    @property
    def pid(self) -> int:
        return int(self.hello.identity[2]) if self.hello is not None else 0

    @property
    def unread_bytes(self) -> int:
        """Sent, and not taken out of its socket yet."""
        count = array("i", [0])
        fcntl.ioctl(self.socket, termios.TIOCOUTQ, count)
        return count[0]

    def send(self, op: int, request: int, message: Any) -> None:
        try:
            self.socket.sendall(codec.encode([op, request, *message]))
        except OSError:
            return


class FakeBroker:
    """See the module."""

    def __init__(self, path: str, *, heartbeat_ms: int = 50) -> None:
        self.path = path
        self.heartbeat_ms = heartbeat_ms
        self.peers: list[Peer] = []
        self.received: list[Sent] = []
        self.holders: dict[int, str] = {}
        """Counter of a token to the nonce of the worker that got it."""
        self.answers: dict[int, list[Sent]] = {}
        self.withhold: Callable[[str], bool] = lambda op: False
        """Requests for which this is true are written down and not answered."""
        self.refuse_pool = ""
        """Code word with which every `pool` is refused."""
        self.refused_kind = ""
        """The same for one that declares this kind."""
        self.sends_ahead = False
        """Hand out to a worker that is busy, too."""
        self._epoch = 1
        self._counter = 0
        self._jobs: deque[work.Job] = deque()
        self._lock = threading.RLock()
        self._listener: socket.socket | None = None

    def start(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(64)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        with self._lock:
            if self._listener is not None:
                os.unlink(self.path)
                self._listener.shutdown(socket.SHUT_RDWR)
                self._listener.close()
                self._listener = None
            for peer in self.peers:
                _shut(peer.socket)
            self.peers = []

    # --- what tests ask for ------------------------------------------------------------------------

    def put(
        self, kind: str, *args: Any, time_limit_s: float = 60, raw: bytes | None = None, **kwargs: Any
    ) -> int:
        """Hand a job to the next free worker; the counter of its token."""
        with self._lock:
            self._counter += 1
            number = self._counter
            payload = msgpack.packb([args, kwargs]) if raw is None else raw
            job = work.Job(
                [self._epoch, number], f"job-{number}", number, kind, "default", 1, payload,
                round(time_limit_s * 1000), 60_000, 0, None,
            )  # fmt: skip
            self._jobs.append(job)
            self._hand_out()
            return number

    def wait_answer(self, counter: int, *, deadline_s: float = 10) -> Sent:
        """The ack, nack or release of a job."""
        wait_until(lambda: counter in self.answers, f"answer to {counter}", deadline_s=deadline_s)
        return self.answers[counter][0]

    def wait_result(self, counter: int) -> Any:
        """What the job's handler returned."""
        op, message = self.wait_answer(counter)
        assert op == "ack", message
        return None if message.result is None else msgpack.unpackb(message.result)

    def wait_holder_nonce(self, counter: int) -> str:
        """Nonce of the worker that got a job, whether it lives or not."""
        wait_until(lambda: counter in self.holders, f"{counter} handed out")
        return self.holders[counter]

    def wait_holder(self, counter: int) -> Peer:
        """The worker that has a job."""
        nonce = self.wait_holder_nonce(counter)
        return next(peer for peer in self.workers() if peer.nonce == nonce)

    def wait_ended(self, counter: int) -> None:
        """A job was answered, or its worker ended without having begun it."""

        def ended() -> bool:
            reports = [
                exited for exited in self.all_of("exited") if exited.worker == self.holders.get(counter)
            ]
            return counter in self.answers or any(not exited.tokens for exited in reports)

        wait_until(ended, f"{counter} answered or given back")

    def hello_holding(self, counter: int) -> messages.Hello | None:
        """A worker's hello that says it holds a token."""
        hellos: list[messages.Hello] = self.all_of("hello")
        return next((hello for hello in hellos if any(held[1] == counter for held in hello.held)), None)

    def barrier(self) -> None:
        """Return when the supervisor has acted on all that was pushed to it, and has beaten since."""
        count = len(self.all_of("heartbeat"))
        wait_until(lambda: len(self.all_of("heartbeat")) >= count + 4, "heartbeats")

    def wait_exit(self, nonce: str, *, deadline_s: float = 10) -> work.Exited:
        """The report of a worker's end, which `workers` knows too by then."""

        def found() -> work.Exited | None:
            if nonce in [worker.nonce for worker in self.workers()]:
                return None
            return next((e for e in self.all_of("exited") if e.worker == nonce), None)

        exited = wait_until(found, f"exit of {nonce}", deadline_s=deadline_s)
        assert exited is not None
        return exited

    def wait_at_rest(self, worker: Peer) -> None:
        """Until it has acted on all that it was sent, and waits for more."""

        def is_at_rest() -> bool:
            found = process.stat(worker.pid)
            return worker.unread_bytes == 0 and found is not None and found.state == "S"

        wait_until(is_at_rest, f"{worker.nonce} is at rest")

    def wait_workers(self, count: int) -> list[Peer]:
        """So many connected workers."""

        def found() -> list[list[Peer]]:
            workers = self.workers()
            return [workers] if len(workers) == count else []

        (workers,) = wait_until(found, f"{count} workers")
        return workers

    def all_of(self, op: str) -> list[Any]:
        """Every message of one op that has come, in order."""
        with self._lock:
            return [message for name, message in self.received if name == op]

    def workers(self) -> list[Peer]:
        with self._lock:
            return [peer for peer in self.peers if peer.hello is not None]

    def kill(self, counter: int, reason: str, *, grace_s: float) -> None:
        """Have the supervisor end an attempt."""
        message = work.Kill(self.holders[counter], [self._epoch, counter], reason, round(grace_s * 1000))
        with self._lock:
            for peer in self.peers:
                if peer.pool is not None:
                    peer.send(work.OPS[work.Kill][0], 0, message)

    def recall(self, counter: int) -> work.Recalled:
        """Take back what has not begun, up to a token; the supervisor's answer."""
        (worker,) = self.workers()
        answers = len(self.all_of("recalled"))
        with self._lock:
            for peer in self.peers:
                if peer.pool is not None:
                    peer.send(work.OPS[work.Recall][0], 0, work.Recall(worker.nonce, [self._epoch, counter]))
        wait_until(lambda: len(self.all_of("recalled")) > answers, "the supervisor's answer")
        answer: work.Recalled = self.all_of("recalled")[-1]
        return answer

    # --- the other side ----------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            peer = Peer(sock)
            with self._lock:
                self.peers.append(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: Peer) -> None:
        reader = FrameReader()
        while True:
            try:
                data = peer.socket.recv(limits.READ_BYTES)
            except OSError:
                data = b""
            if not data:
                break
            reader.feed(data)
            while (body := reader.next_frame()) is not None:
                fields = codec.decode(body)
                op = ops.BY_NUMBER[fields[0]]
                with self._lock:
                    self._take(peer, op.name, fields[1], ops.build(op, fields[2:]))
        with self._lock:
            peer.socket.close()
            if peer in self.peers:
                self.peers.remove(peer)

    def _take(self, peer: Peer, op: str, number: int, message: Any) -> None:
        self.received.append((op, message))
        if op in ("ack", "nack", "release"):
            self.answers.setdefault(message.token[1], []).append((op, message))
        if self.withhold(op) or op == "progress":
            return
        if op == "pool" and (refusal := self._refusal(message)):
            peer.send(messages.ERROR, number, refusal)
            return
        peer.send(messages.ANSWER, number, self._answer(peer, op, message))
        self._hand_out()

    def _refusal(self, pool: work.Pool) -> messages.Refusal | None:
        if self.refused_kind in [kind["kind"] for kind in pool.kinds]:
            return messages.Refusal("bad_message", f"not the kind {self.refused_kind}")
        return messages.Refusal(self.refuse_pool, "not you") if self.refuse_pool else None

    def _answer(self, peer: Peer, op: str, message: Any) -> Any:
        if op == "hello":
            peer.hello = message
            peer.is_busy = any(phase == "running" for _, _, phase in message.held)
        elif op == "pool":
            peer.pool = message
        elif op == "heartbeat":
            return work.Wishes()
        else:
            peer.is_busy = False
            return messages.Done()
        return messages.Welcome(1, self._epoch, self.heartbeat_ms, 1, 1, 1)

    def _hand_out(self) -> None:
        for peer in self.peers:
            if self._jobs and peer.hello is not None and (self.sends_ahead or not peer.is_busy):
                job, peer.is_busy = self._jobs.popleft(), True
                self.holders[job.token[1]] = peer.nonce
                peer.send(work.OPS[work.Job][0], 0, job)


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
