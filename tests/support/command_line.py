"""Running a command line in this process, against a scripted broker."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from stoker.cli.main import run


class Ran(NamedTuple):
    code: int
    out: str
    err: str


CommandLine = Callable[..., Ran]


def command_line(capsys: pytest.CaptureFixture[str], socket: str) -> CommandLine:
    """A function that runs `stoker VERB ARGUMENTS --socket SOCKET` and says what came of it."""

    def stoker(verb: str, *arguments: str) -> Ran:
        capsys.readouterr()
        code = run([verb, "--socket", socket, *arguments])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return stoker
