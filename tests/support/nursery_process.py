"""A real nursery, and sentinels of it that are talked to without a loop."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from support.paths import python_path
from support.pools import children_of
from support.waiting import wait_until

from stoker.worker.commands.program import Program
from stoker.worker.commands.talk import Channel, End, Ended, Failed, Message, Started

DEADLINE_S = 20.0
"""For one message. What takes longer hangs."""


CROWDED = """
import time
from stoker.worker import process
list_all = process.all_stats
def all_stats():
    found = list(list_all())
    time.sleep(0.03)
    return iter(found)
process.all_stats = all_stats
"""
"""Code for a nursery on a host with thousands of processes: what was listed is old when it is used."""


class Line:
    """A sentinel, to whom this is the worker."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(DEADLINE_S)
        self.channel = Channel(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, program: Program, streams: Sequence[int] | None = None) -> Started | Failed:
        """Have it started, with /dev/null for all of its streams if none are given."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        # If nobody is there, why may have been said before.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.channel.send(program, descriptors=[null] * 3 if streams is None else streams)
        os.close(null)
        message = self.hear()
        assert isinstance(message, Started | Failed), message
        return message

    def started(self, program: Program, streams: Sequence[int] | None = None) -> int:
        """Its pid."""
        message = self.begin(program, streams)
        assert isinstance(message, Started), message
        return message.pid

    def failed(self, program: Program) -> Failed:
        """It cannot be started."""
        message = self.begin(program)
        assert isinstance(message, Failed), message
        return message

    def run(self, program: Program, streams: Sequence[int] | None = None) -> Ended:
        """Start it and wait for its end."""
        self.started(program, streams)
        return self.ended()

    def said_by(self, program: Program) -> str:
        """What it writes to its stdout until it ends, with status 0."""
        reader, writer = os.pipe()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.started(program, [null, writer, null])
        os.close(null)
        os.close(writer)
        with open(reader, "rb") as file:
            said = file.read()
        ended = self.ended()
        assert ended.status == 0, ended
        return said.decode()

    def end(self, grace_ms: int) -> None:
        """Have the program ended."""
        self.channel.send(End(grace_ms))

    def ended(self) -> Ended:
        """Once nothing of the program is left."""
        message = self.hear()
        assert isinstance(message, Ended), message
        return message

    def hear(self) -> Message:
        """The next message. EOFError if there is nobody any more."""
        while (message := self.channel.next()) is None:
            try:
                is_there = self.channel.receive()
            except ConnectionResetError:
                is_there = False
            if not is_there:
                raise EOFError
        return message

    def close(self) -> None:
        """The worker lets go."""
        self.channel.socket.close()


class NurseryProcess:
    """A nursery, for which this is the worker. It and all of its sentinels are gone after the `with` block."""

    def __init__(self, prefix: Sequence[str] = (), *, code: str = "") -> None:
        """`prefix`: a program and arguments, to which the command line of the nursery is added.

        `code` is run in it before its own.
        """
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            module = "stoker.worker.commands.nursery"
            main = f"import runpy, sys; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
            how = ["-c", f"{code}\n{main}"] if code else ["-m", module]
            self.process = subprocess.Popen(
                [*prefix, sys.executable, *how, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
                env={**os.environ, "PYTHONPATH": python_path()},
            )
        self._lines: list[Line] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for line in self._lines:
            line.close()
        self._socket.close()
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.wait()

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self, kind: int = socket.SOCK_STREAM) -> Line:
        """To a new sentinel, over a socket of that kind."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        with theirs:
            socket.send_fds(self._socket, [b"\0"], [theirs.fileno()])
        line = Line(ours)
        self._lines.append(line)
        return line

    def sentinels(self) -> list[int]:
        """Pids of all that live."""
        return children_of(self.pid, "stoker-sentinel")

    def wait_sentinels(self, count: int) -> list[int]:
        """Their pids, once there are so many."""
        wait_until(lambda: len(self.sentinels()) == count, f"{count} sentinels")
        return self.sentinels()
