"""What tests start is of the tree under test, wherever a process has found that."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import sources
from support.paths import TESTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

STARTS = """
import subprocess, sys
sys.path[:0] = sys.argv[1:]
from support.faults.place import ENVIRON
shows = [sys.executable, "-c", "import stoker, support; print(stoker.__file__, support.__path__[0])"]
print(subprocess.run(shows, env=ENVIRON, cwd="/", capture_output=True, text=True, check=True).stdout)
"""

SETS = re.compile(r"""["'\s({]PYTHONPATH["']?\s*[:=]\s*(?!tests )""")
"""A line that sets it; not a command line for people."""


@pytest.mark.parametrize("is_told_by", ["environment", "sys.path"])
def test_broker_is_of_the_tree_that_its_harness_has_imported(tmp_path: Path, is_told_by: str) -> None:
    # Another tree than the one that is installed, though the files are the same.
    (tmp_path / "stoker").symlink_to(sources.SRC)
    places = [str(tmp_path), str(TESTS)]
    is_environment = is_told_by == "environment"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(places if is_environment else [])}
    command = [sys.executable, "-c", STARTS, *([] if is_environment else places)]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(tmp_path / "stoker" / "__init__.py"), str(TESTS / "support")]


def test_nobody_else_says_where_to_look_for_modules() -> None:
    others = [path for path in sources.modules(TESTS) if path != Path(__file__)]
    lines = [line for path in others for line in path.read_text().splitlines() if SETS.search(line)]
    assert len(lines) >= 6
    assert [line for line in lines if "python_path(" not in line] == []
