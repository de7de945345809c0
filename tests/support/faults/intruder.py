"""Another user that listens where a broker was, and would take any job that is sent there."""

import subprocess
from types import TracebackType
from typing import Self

from support.faults.bind_races import interpreter
from support.other_user import GID, UID

LISTENS = """
import os, socket, sys
path = sys.argv[1]
os.unlink(path)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
os.chmod(path, 0o777)
listener.listen()
print("there", flush=True)
sys.stdin.read()
"""


class Intruder:
    """Use as a context manager; the directory has to let it do that."""

    def __init__(self, path: str) -> None:
        self._process = subprocess.Popen(
            [interpreter(), "-c", LISTENS, path],
            user=UID,
            group=GID,
            extra_groups=[],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"there\n", "the intruder did not come"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
