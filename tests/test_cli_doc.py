"""docs/cli.md says what is: every command, every exit code."""

import re
from pathlib import Path

from stoker.cli.main import COMMANDS
from stoker.config.exits import INTERRUPTED, Exit

PAGE = (Path(__file__).parents[1] / "docs" / "cli.md").read_text()


def test_every_exit_code_has_its_row() -> None:
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert rows == {*Exit, INTERRUPTED}


def test_every_command_has_its_row() -> None:
    named = set(re.findall(r"^\| `([a-z]+)", PAGE, re.MULTILINE)) | set(re.findall(r", `([a-z]+) ", PAGE))
    assert set(COMMANDS) <= named | {"resume"}
    assert "`resume [QUEUE]`" in PAGE
