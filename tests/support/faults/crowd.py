"""A program: many connections that are of no use to anybody, held until it is told to end.

    python -m support.faults.crowd SOCKET COUNT

It prints one line when all are there and one when the broker has ended them all, ends at the end of its
standard input, and prints as JSON how many of each kind there were and how they were ended: with which words,
and after how long the last of them. It
is a process of its own, so that what its clients cost is not what honest clients in another one see.

    silent    connects, and says nothing
    headed    says the header of a frame, and nothing more
    trickle   says one byte of a frame a second
    deaf      asks for much, and reads nothing
    nagging   asks for small things without end, and reads nothing
    half      asks for something, closes its sending side, reads nothing
"""

import json
import resource
import select
import socket
import struct
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import msgpack

from stoker.proto.messages import Help, Show
from stoker.proto.ops import BY_MESSAGE

TRICKLE_S = 1.0
LARGE = "large"
"""The id of a job with a payload as long as may be."""


def frame(*values: Any) -> bytes:
    body: bytes = msgpack.packb(values)
    return struct.pack(">I", len(body)) + body


_SHOW, _HELP = BY_MESSAGE[Show].number, BY_MESSAGE[Help].number
FIRST_WORDS: dict[str, bytes] = {
    "silent": b"",
    "headed": struct.pack(">I", 60_000),
    "trickle": struct.pack(">I", 60_000),
    "deaf": frame(_SHOW, 1, LARGE, True) * 3,
    "nagging": frame(_HELP, 1) * 200,
    "half": frame(_SHOW, 1, LARGE, True),
}
LISTENING = frozenset({"silent", "headed", "trickle"})
"""They read what they are told, if only to say how they ended."""


class Nuisance:
    """One connection."""

    def __init__(self, path: str, kind: str) -> None:
        self.kind = kind
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.setblocking(False)
        self.since_s = time.monotonic()
        self.ended_s: float | None = None
        self.word = ""
        self._said = bytearray()
        with suppress(OSError):
            self.socket.send(FIRST_WORDS[kind])
            if kind == "half":
                self.socket.shutdown(socket.SHUT_WR)

    def trickle(self) -> None:
        with suppress(OSError):
            self.socket.send(b"\0")

    def listen(self) -> None:
        """Read, if it does that, and note the end."""
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._said += data
        if not data:
            self.end()

    def end(self) -> None:
        """The broker has hung up."""
        self.ended_s = time.monotonic() - self.since_s
        if self._said:
            self.word = str(msgpack.unpackb(bytes(self._said[4:]))[2])


class Crowd:
    """All of them."""

    def __init__(self, path: str, count: int) -> None:
        kinds = list(FIRST_WORDS)
        self._all = [Nuisance(path, kinds[number % len(kinds)]) for number in range(count)]
        self._left = count
        self._poll = select.poll()
        self._by_descriptor = {each.socket.fileno(): each for each in self._all}
        for each in self._all:
            # A hang-up is reported always; what has been said only to those who read.
            self._poll.register(each.socket, select.POLLIN if each.kind in LISTENING else 0)

    def hold(self) -> None:
        """Until the end of standard input."""
        self._poll.register(sys.stdin, select.POLLIN)
        due_s = time.monotonic() + TRICKLE_S
        while True:
            for descriptor, _ in self._poll.poll(max(due_s - time.monotonic(), 0) * 1000):
                if descriptor == sys.stdin.fileno():
                    return
                self._look(self._by_descriptor[descriptor])
            if time.monotonic() >= due_s:
                due_s += TRICKLE_S
                for each in self._all:
                    if each.kind == "trickle" and each.ended_s is None:
                        each.trickle()

    def _look(self, each: Nuisance) -> None:
        if each.kind in LISTENING:
            each.listen()
        else:
            each.end()
        if each.ended_s is not None:
            self._poll.unregister(each.socket)
            self._left -= 1
            if not self._left:
                print("over", flush=True)

    def report(self) -> dict[str, Any]:
        """By kind: how many there were, how many were ended, with which words, and the latest of them."""
        return {kind: self._of([each for each in self._all if each.kind == kind]) for kind in FIRST_WORDS}

    def _of(self, these: list[Nuisance]) -> dict[str, Any]:
        ends = [each.ended_s for each in these if each.ended_s is not None]
        words = Counter(each.word for each in these if each.word)
        return {"count": len(these), "ended": len(ends), "words": words, "latest_s": max(ends, default=0.0)}


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowd = Crowd(sys.argv[1], int(sys.argv[2]))
    print("there", flush=True)
    crowd.hold()
    print(json.dumps(crowd.report()), flush=True)


if __name__ == "__main__":
    main()
