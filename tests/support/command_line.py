"""Running a command line in this process, against a scripted broker."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from support.scripted_broker import ScriptedBroker, stores_everything

from stoker.cli.main import run
from stoker.proto.messages import Enqueue


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


def enqueued(socket_path: str, stoker: CommandLine, *command: str) -> Enqueue:
    """What a command sends that stores a job and prints its id, and nothing else."""
    with ScriptedBroker(socket_path, stores_everything) as broker:
        ran = stoker(*command)
        assert (ran.code, ran.err) == (0, "")
        (message,) = broker.messages(Enqueue)
    assert isinstance(message, Enqueue)
    assert ran.out == f"{message.id}\n"
    return message
