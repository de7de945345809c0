"""A process outside of any program's tree, which keeps the end of a pipe that a program hands to it."""

import subprocess
from pathlib import Path
from typing import Self

from support.argvs import python
from support.waiting import wait_until

_KEEPER = """
    import os, socket, sys
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    end, _ = listener.accept()
    _, (fd,), _, _ = socket.recv_fds(end, 1, 1)
    floods = sys.argv[2] == "flood"
    if floods:
        os.write(fd, b"outside")
    end.send(b"!")
    while True:
        if floods:
            os.write(fd, bytes(65536))
        elif not sys.stdin.read(1):
            break
"""

_GIVER = """
    import socket, sys
    end = socket.socket(socket.AF_UNIX)
    end.connect(sys.argv[1])
    print("inside", flush=True)
    socket.send_fds(end, [b"!"], [1])
    end.recv(1)
"""


class PipeKeeper:
    """Of the stdout of one program, `argv`. It ends with its `with` block."""

    def __init__(self, path: Path, *, floods: bool = False) -> None:
        """`path`: where it listens. If it floods it ends as well when nobody reads any more."""
        self._path = path
        self.process = subprocess.Popen(
            python(_KEEPER, str(path), "flood" if floods else "keep"),
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        wait_until(self._path.exists, "the keeper of the pipe listens")
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()

    @property
    def argv(self) -> list[str]:
        """A program that says "inside", hands its stdout over, and ends."""
        return python(_GIVER, str(self._path))
