"""Being another user, for tests that root runs: whom to be, and an interpreter which that user can run.

A user and a group that no host has an entry for, so that nobody's files are in play. The interpreter of
the tests may lie in a directory that is root's alone; another one of the same version does as well.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.paths import python_path

UID, GID = 54321, 54322
OTHER_UID = 54323

RUN_S = 30
"""One command, on a loaded machine too."""

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")


def python_for_all() -> list[str]:
    """The beginning of a command line: an interpreter that any user may run, with stoker on its path.

    Skips the test where there is none.
    """
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        command = ["env", f"PYTHONPATH={python_path()}:{os.pathsep.join(_packages())}", path]
        if os.path.exists(path) and _runs(command):
            return command
    pytest.skip(f"no {name} that another user may run")


def _packages() -> list[str]:
    return [path for path in sys.path if path.endswith("site-packages")]


def _runs(command: list[str]) -> bool:
    script = "import stoker.cli.main, stoker.worker.supervisor"
    ran = run_as(UID, GID, [*command, "-c", script])
    return ran.returncode == 0


def run_as(
    uid: int,
    gid: int,
    command: Sequence[str],
    *,
    groups: Sequence[int] | None = None,
    cwd: str | Path = "/",
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """A command to its end, as this user, in no further group unless named."""
    return subprocess.run(
        command,
        user=uid,
        group=gid,
        extra_groups=list(groups or ()),
        cwd=cwd,
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )


def python_as(uid: int, gid: int, script: str, *arguments: str, groups: list[int] | None = None) -> str:
    """What a script prints that runs as this user."""
    ran = run_as(uid, gid, [*python_for_all(), "-c", script, *arguments], groups=groups)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
