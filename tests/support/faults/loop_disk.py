"""A real file system on a loop device, of which the power can be cut: the kernel is told to drop it.

The shutdown ioctl of XFS, which ext4 has too, lets every later write fail; with the flag that is used here
not even the file system's own journal is flushed. What was not on the device by then is gone, and the next
mount replays the journal as after a power cut.
"""

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from fcntl import ioctl
from pathlib import Path
from types import TracebackType
from typing import Self

from support.waiting import wait_until

from stoker.proto import limits

from .recording import memory_directory

MAKERS: dict[str, Sequence[str]] = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
}
SIZE_BYTES = {"ext4": 64 * limits.MIB, "xfs": 320 * limits.MIB}
"""The least in which there is room for a journal; of XFS the least that there may be."""

BUSY_S = 10.0
"""How long files of a killed process may keep the mount."""

_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2


class LoopDisk:
    """One file system, mounted. Use as a context manager; nothing of it is left afterwards."""

    def __init__(self, directory: Path, kind: str) -> None:
        self._image = directory / "image"
        self.mount = directory / "mount"
        self._kind = kind

    def __enter__(self) -> Self:
        with open(self._image, "wb") as image:
            image.truncate(SIZE_BYTES[self._kind])
        subprocess.run([*MAKERS[self._kind], str(self._image)], check=True, capture_output=True)
        self.mount.mkdir(mode=0o700)
        self._mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Lazily, so that it goes whoever still has a file open; the loop device goes with it.
        while self._is_mounted():
            subprocess.run(["umount", "-l", str(self.mount)], check=True)

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self._image), str(self.mount)], check=True)

    def cut(self) -> None:
        """The power is gone: from now on nothing is written."""
        fd = os.open(self.mount, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            ioctl(fd, _SHUTDOWN, struct.pack("=I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def come_back(self) -> None:
        """Mount it again, when nobody uses it any more."""
        wait_until(self._is_unmounted, "the file system is free", deadline_s=BUSY_S)
        self._mount()

    def _is_mounted(self) -> bool:
        # Not `ismount`, which takes a file system that fails for none.
        return f" {self.mount} " in Path("/proc/self/mountinfo").read_text()

    def _is_unmounted(self) -> bool:
        if self._is_mounted():
            subprocess.run(["umount", str(self.mount)], check=False, capture_output=True)
        # Two devices on one image would each write what the other does not know of.
        users = subprocess.run(["losetup", "-j", str(self._image)], check=True, capture_output=True).stdout
        return not users and not self._is_mounted()

    def make_read_only(self) -> None:
        """As the kernel does after an error of the device."""
        subprocess.run(["mount", "-o", "remount,abort", str(self.mount)], check=False, capture_output=True)

    def take_away(self) -> None:
        """Unmount it under whoever uses it: what is open stays open, its name is gone."""
        subprocess.run(["umount", "-l", str(self.mount)], check=True)


def kinds() -> list[str]:
    """The kinds of file systems that this host can make and mount."""
    return [kind for kind in MAKERS if shutil.which(MAKERS[kind][0]) and _can_mount(kind)]


def _can_mount(kind: str) -> bool:
    with memory_directory() as directory:
        try:
            with LoopDisk(directory, kind):
                return True
        except (subprocess.CalledProcessError, OSError):
            return False


def hindrance() -> str:
    """Why there can be no such disk on this host; empty if there can."""
    if os.geteuid() != 0:
        return "mounting a file system takes root"
    return "" if "ext4" in kinds() else "no ext4 on a loop device can be made and mounted here"
