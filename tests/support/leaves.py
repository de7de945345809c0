"""Control groups for tests: whether there can be any here, and one of its own for a nursery."""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.waiting import wait_until

from stoker.worker.commands.leaf import Leaves, own_trunk

PREFIX = "stoker-leaf-"

WITHOUT_LEAVES = "from stoker.worker.commands import leaf; leaf.own_trunk = lambda: None"
"""Code for a nursery on a host where there can be none. What it leaves when it is killed no other nursery ends."""


def has_leaves() -> bool:
    """Sentinels that are started from this process have leaves."""
    leaf = Leaves(own_trunk()).fresh()
    if leaf is None:
        return False
    leaf.remove()
    leaf.let_go()
    return True


class Trunk:
    """A group that is made for a test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.prefix = ["sh", "-c", f'echo 0 > "{path}/cgroup.procs"; exec "$@"', "sh"]
        """For a command line, whose process is in here then."""

    def leaves(self) -> list[Path]:
        """Those that are in it."""
        return sorted(self.path.glob(f"{PREFIX}*"))

    def wait_leaves(self, count: int) -> None:
        wait_until(lambda: len(self.leaves()) == count, f"{count} leaves")

    def kill(self) -> None:
        """All that is in it."""
        (self.path / "cgroup.kill").write_text("1")

    def remove(self) -> None:
        """It and all that is below it, once nobody is there."""
        self.kill()
        wait_until(lambda: "populated 0" in (self.path / "cgroup.events").read_text(), "nobody in it")
        for directory, _, _ in os.walk(self.path, topdown=False):
            with suppress(FileNotFoundError):
                os.rmdir(directory)


@contextmanager
def a_trunk() -> Generator[Trunk]:
    """It is gone afterwards, with all that is in it. Only where there are leaves."""
    own = own_trunk()
    assert own is not None
    trunk = Trunk(Path(own, f"test-trunk-{os.getpid()}-{time.monotonic_ns()}"))
    trunk.path.mkdir()
    try:
        yield trunk
    finally:
        trunk.remove()


def group_of(pid: int) -> str:
    """The name of the group that a process is in."""
    groups = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    (own,) = [line for line in groups if line.startswith("0::")]
    return own.rpartition("/")[2]
