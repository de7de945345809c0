"""A PostgreSQL of a test's own, in its directory, reached by a socket there; where one is installed."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from support.waiting import wait_until

USERS = ("postgres", "nobody")
"""PostgreSQL will not run as root; then it is run as the first of these that exists."""

START_S = 30.0


def program(name: str) -> str | None:
    """Where a program of PostgreSQL is; Debian keeps those of the server out of the path."""
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, homes)))


def is_installed() -> bool:
    """Whether a server can be made here."""
    return None not in (program("initdb"), program("postgres"))


def _user() -> str | None:
    """Whom to run it as; None: as whoever runs the tests."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in USERS if name in names)


@contextmanager
def running(directory: Path) -> Generator[str, None, None]:
    """A server for the time of the block: how to connect to it."""
    user, data = _user(), directory / "pg"
    data.mkdir()
    if user is not None:
        shutil.chown(data, user)
        directory.chmod(0o755)
    initdb, server = program("initdb"), program("postgres")
    assert initdb is not None and server is not None
    cluster, log = data / "cluster", directory / "postgres.log"
    with log.open("wb") as output:
        make = [initdb, "-D", str(cluster), "-U", "tester", "-A", "trust", "--no-sync"]
        subprocess.run(
            make, user=user, check=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/"
        )
        run = [server, "-D", str(cluster), "-k", str(data), "-c", "listen_addresses=", "-c", "fsync=off"]
        process = subprocess.Popen(
            run,
            user=user,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            start_new_session=True,
        )
    try:
        wait_until(lambda: b"ready to accept" in log.read_bytes(), "PostgreSQL is up", deadline_s=START_S)
        yield f"host={data} user=tester dbname=postgres"
    finally:
        process.terminate()
        process.wait(START_S)
