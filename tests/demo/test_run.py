"""`stoker demo` as it is run: the whole of it, its last line, and what it leaves behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import wait_until

from stoker.demo.run import standard_library

COMMAND = [sys.executable, "-m", "stoker.cli.main", "demo"]


def test_standard_library_is_python_files_without_installed_packages() -> None:
    paths = standard_library()
    assert any(path.endswith("/os.py") for path in paths)
    assert all(path.endswith(".py") and "-packages/" not in path for path in paths)


@pytest.fixture
def environ(short_directory: Path) -> dict[str, str]:
    """In which the demo makes its directory where the test can see it."""
    return {**os.environ, "TMPDIR": str(short_directory)}


def processes_naming(text: str) -> list[str]:
    """Command lines that mention a text."""
    lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [line for line in lines if text in line]


@pytest.mark.slow
def test_demo_ends_with_its_line_and_leaves_nothing(environ: dict[str, str]) -> None:
    done = subprocess.run(COMMAND, env=environ, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = len(standard_library())
    last = rf"jobs={jobs} done={jobs} dead=0 lost=0 wrong=0 duplicates=(\d+) workers_killed=1 brokers_killed=1 seconds=[0-9.]+"
    *before, line = done.stdout.splitlines()
    match = re.fullmatch(last, line)
    assert match is not None, line
    assert len(before) == int(match[1]) <= 4
    assert os.listdir(environ["TMPDIR"]) == []
    assert processes_naming(environ["TMPDIR"]) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_demo_leaves_nothing(environ: dict[str, str], number: signal.Signals) -> None:
    # Whoever runs the tests may be one that ignores hang-ups itself.
    command = ["env", "--default-signal=HUP", *COMMAND]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_until(lambda: processes_naming(f"{environ['TMPDIR']}/stoker-demo-"), "the demo's processes")
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert os.listdir(environ["TMPDIR"]) == []
    wait_until(lambda: not processes_naming(environ["TMPDIR"]), "the end of the demo's processes")
