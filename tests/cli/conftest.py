"""A command line that talks to the broker of the test."""

import pytest
from support.command_line import CommandLine, command_line


@pytest.fixture
def stoker(capsys: pytest.CaptureFixture[str], socket_path: str) -> CommandLine:
    return command_line(capsys, socket_path)
