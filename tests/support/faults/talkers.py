"""A program: a crowd that talks. It fills its sockets with small requests, most of which are refused.

    python -m support.faults.talkers SOCKET COUNT SEED

A line on its standard input, `talk`, has all of them connect and fill their sockets; `hush` has all of them
leave at once, whatever they have said and not heard. It says `there` and `gone` when that is done, and at the
end of its standard input as JSON what it has seen.

    reader    reads what it is answered, and says more as soon as there is room
    deaf      reads nothing
    leaver    reads nothing, and is gone as soon as its socket is full
    dripper   a reader that says a few bytes at a time, so that hardly anything arrives whole

Each says it in frames, in JSON lines, or in lines as a person types them. It is a process of its own with a
low priority, so that what its clients cost is not what honest clients in another one see.
"""

import json
import os
import resource
import select
import socket
import sys
from collections import Counter
from collections.abc import Callable
from random import Random

from stoker.proto.messages import Cancel, Enqueue, Hello, Kick, Message, Show, Status, Why
from stoker.proto.model import Role
from stoker.proto.ops import BY_MESSAGE

from .crowd import frame

NICENESS = 10

TALK, HUSH = b"talk\n", b"hush\n"
FULL_EVERY = 10
"""One in so many fills a socket as large as the kernel gives it, which is 200 KiB as a rule; the others a
smaller one, or it would take minutes to hear a thousand of them out."""

SMALL_BYTES = 8 * 1024
"""The kernel doubles it, and counts what it needs itself."""

DRIP_BYTES = 5

BLOB_BYTES = 64 * 1024
READ_BYTES = 64 * 1024

NOBODY = "nobody-has-this-id"
UNKNOWN_OP = 9_999

_SAID: tuple[Message, ...] = (
    Hello(1, Role.SUBMIT.value),
    Status(),
    Why(NOBODY),
    Show(NOBODY),
    Cancel(NOBODY),
    Kick(NOBODY),
    Enqueue("ill", "not a kind", b""),
)
"""Valid, but for the last; nothing of it changes anything."""

_TYPED = (b"stats\r\n", b"nonsense\r\n", b"peek 1\r\n")


def _frame(random: Random) -> bytes:
    number, kind = random.getrandbits(30), random.randrange(len(_SAID) + 1)
    if kind == len(_SAID):
        return frame(UNKNOWN_OP, number)
    return frame(BY_MESSAGE[type(_SAID[kind])].number, number, *_SAID[kind])


def _line(random: Random) -> bytes:
    kind = random.randrange(len(_SAID) + 1)
    if kind == len(_SAID):
        return b'{"op":"ping"}\n'
    op = BY_MESSAGE[type(_SAID[kind])]
    fields = zip(op.message._fields, _SAID[kind], strict=True)
    said = {name: value for name, value in fields if value not in (None, b"")}
    return json.dumps({"op": op.name, **said}).encode() + b"\n"


def _typed(random: Random) -> bytes:
    return random.choice(_TYPED)


SPELLINGS: tuple[Callable[[Random], bytes], ...] = (_frame, _line, _typed)


def speech(spell: Callable[[Random], bytes], random: Random) -> memoryview:
    """What one says, over and over again."""
    said = bytearray()
    while len(said) < BLOB_BYTES:
        said += spell(random)
    return memoryview(bytes(said))


class Talker:
    """One connection."""

    def __init__(self, path: str, speech: memoryview, *, is_small: bool, is_dripping: bool) -> None:
        self.is_over = False
        """The broker has hung up."""
        self._speech = speech
        self._at = 0
        self._is_dripping = is_dripping
        self.socket = socket.socket(socket.AF_UNIX)
        if is_small:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
        self.socket.connect(path)
        self.socket.setblocking(False)

    def talk(self) -> int:
        """Until the socket is full, or a drop; so many bytes."""
        said = 0
        try:
            while True:
                end = self._at + DRIP_BYTES if self._is_dripping else len(self._speech)
                count = self.socket.send(self._speech[self._at : end])
                self._at = (self._at + count) % len(self._speech)
                said += count
                if self._is_dripping:
                    return said
        except BlockingIOError:
            return said
        except (BrokenPipeError, ConnectionResetError):
            self.is_over = True
            return said

    def listen(self) -> int:
        """What there is to read; so many bytes."""
        try:
            heard = len(self.socket.recv(READ_BYTES))
        except BlockingIOError:
            return 0
        except ConnectionResetError:
            heard = 0
        self.is_over = self.is_over or not heard
        return heard


class Crowd:
    """All of them."""

    def __init__(self, path: str, count: int, random: Random) -> None:
        self.counts: Counter[str] = Counter()
        self._path, self._count = path, count
        self._speeches = [speech(spell, random) for spell in SPELLINGS]
        self._poll = select.poll()
        self._poll.register(sys.stdin, select.POLLIN)
        self._readers: dict[int, Talker] = {}
        self._deaf: list[Talker] = []

    def talk(self) -> None:
        """All come, and fill their sockets."""
        for number in range(self._count):
            is_small = number % FULL_EVERY != 0
            speech = self._speeches[number // 4 % 3]
            talker = Talker(self._path, speech, is_small=is_small, is_dripping=number % 4 == 3)
            self.counts["said"] += talker.talk()
            self.counts["connections"] += 1
            (self._join, self._deaf.append, _leave, self._join)[number % 4](talker)

    def _join(self, talker: Talker) -> None:
        self._readers[talker.socket.fileno()] = talker
        self._poll.register(talker.socket, select.POLLIN | select.POLLOUT)

    def hush(self) -> None:
        """All leave."""
        for talker in self._readers.values():
            if not talker.is_over:
                self._poll.unregister(talker.socket)
            self.counts["cut off"] += talker.is_over
        for talker in (*self._readers.values(), *self._deaf):
            talker.socket.close()
        self._readers.clear()
        self._deaf.clear()

    def run(self) -> None:
        """Until the end of standard input."""
        while True:
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            # Whoever gives the word is heard first, and changes who is ready.
            if sys.stdin.fileno() in ready:
                if not self._obey(os.read(sys.stdin.fileno(), len(TALK))):
                    return
                continue
            for descriptor in ready:
                self._serve(self._readers[descriptor])

    def _obey(self, word: bytes) -> bool:
        if word == TALK:
            self.talk()
            print("there", flush=True)
        elif word == HUSH:
            self.hush()
            print("gone", flush=True)
        return bool(word)

    def _serve(self, talker: Talker) -> None:
        self.counts["heard"] += talker.listen()
        self.counts["said"] += talker.talk()
        if talker.is_over:
            self._poll.unregister(talker.socket)


def _leave(talker: Talker) -> None:
    talker.socket.close()


def main() -> None:
    os.nice(NICENESS)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    path, count, seed = sys.argv[1:]
    crowd = Crowd(path, int(count), Random(int(seed)))
    crowd.run()
    print(json.dumps(crowd.counts), flush=True)


if __name__ == "__main__":
    main()
