"""Listening sockets that are made, made anew and removed, while another user tries to connect all the time.

The other user can see the directory and may pass through it, and the umask is any. At no moment may the
socket have a mode that gives others anything, nor `connect` end otherwise than with "not there" or "not
allowed": "nobody listens" would already mean that the mode let it pass.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.faults import prober
from support.other_user import GID, UID
from support.proof.harness import Harness, Tally

from stoker.broker.socket import ListeningSocket

UMASKS = (0o000, 0o022, 0o077, 0o777)
HARMLESS = frozenset({"ENOENT", "EACCES", "seen"})


def run(seed: int, amount: int) -> Tally:
    """So many sockets."""
    return run_with(ListeningSocket, seed, amount)


def run_with(make: type[ListeningSocket], seed: int, amount: int) -> Tally:
    """The same with a socket that may be made in another way."""
    rng = random.Random(seed)
    report: dict[str, Any] = {}
    with open_directory() as directory:
        path = str(directory / "broker.sock")
        with probing(path, report):
            for _ in range(amount):
                _one_race(make, path, rng)
    ends: dict[str, int] = report["ends"]
    counts = {"binds": amount, "tries": sum(ends.values()) - ends.get("seen", 0), "seen": ends.get("seen", 0)}
    found = [f"connect ended with {end}, {count} times" for end, count in ends.items() if end not in HARMLESS]
    found += [f"the socket had mode {mode}" for mode in report["modes"]]
    return Tally(counts, [f"bind races, seed {seed}: {fault}" for fault in found])


def _one_race(make: type[ListeningSocket], path: str, rng: random.Random) -> None:
    if rng.random() < 0.3:
        _leave_stale(path)
    umask = os.umask(rng.choice(UMASKS))
    try:
        place = make(path)
        for _ in range(rng.randrange(3)):
            os.unlink(path)
            place.rebind().close()
    finally:
        os.umask(umask)
    place.close()


def _leave_stale(path: str) -> None:
    """What a killed broker leaves behind."""
    with socket.socket(socket.AF_UNIX) as dead:
        os.fchmod(dead.fileno(), 0o600)
        dead.bind(path)


@contextmanager
def open_directory() -> Generator[Path]:
    """A directory through which everybody may pass."""
    directory = Path(tempfile.mkdtemp(prefix="stk-", dir="/tmp"))
    try:
        directory.chmod(0o755)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def probing(path: str, report: dict[str, Any]) -> Generator[None]:
    """Another user tries the path while the block runs; what it saw is in `report` afterwards."""
    script = Path(prober.__file__).read_text(encoding="utf-8")
    process = subprocess.Popen(
        [interpreter(), "-c", script, path],
        user=UID,
        group=GID,
        extra_groups=[],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"there\n", "the other user did not come"
        try:
            yield
        finally:
            process.stdin.close()
            report |= json.loads(process.stdout.read())


def interpreter() -> str:
    """Any Python that another user may run; empty if there is none."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if os.path.exists(path):
            ran = subprocess.run(
                [path, "-c", ""], user=UID, group=GID, cwd="/", check=False, capture_output=True
            )
            if ran.returncode == 0:
                return path
    return ""


def needs() -> str:
    """Another user, and an interpreter for it."""
    if os.geteuid() != 0:
        return "only root can be another user"
    return "" if interpreter() else "no Python that another user may run"


HARNESS = Harness(
    name="bind_races",
    title="the socket made and made anew under every umask, while another user tries to connect",
    unit="binds",
    goal=500,
    piece=500,
    run=run,
    needs=needs,
)
