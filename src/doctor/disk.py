"""The file system under the state directory: whether it keeps what is synced, and has room for more."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from ..broker.files import NETWORK_FILE_SYSTEMS, file_system, free_bytes, taken_again_bytes
from ..config.durations import format_size
from ..proto import limits
from .finding import Finding, Level

CHECK = "disk"

VOLATILE = frozenset({"tmpfs", "ramfs"})
LAYERED = frozenset({"overlay", "aufs", "overlayfs"})
FOREIGN = frozenset({"9p", "virtiofs", "vboxsf", "prl_fs", "fuse.vmhgfs-fuse", "exfat", "vfat", "msdos"})
"""Whose syncs or modes are somebody else's word: another machine's, or none at all."""
TRIED = frozenset({"ext4", "xfs", "btrfs", "ext3", "f2fs", "zfs", "bcachefs"})


class Disk(NamedTuple):
    """What the kernel says of the place."""

    path: str
    type: str
    free_bytes: int
    free_files: int
    """-1 where the file system has no number of its own."""
    is_read_only: bool
    has_ballast: bool


def disk_of(path: str, *, has_ballast: bool) -> Disk:
    """Of a directory that is there."""
    status = os.statvfs(path)
    files = status.f_favail if status.f_files else -1
    read_only = bool(status.f_flag & os.ST_RDONLY)
    return Disk(path, file_system(os.path.realpath(path)), free_bytes(path), files, read_only, has_ballast)


def check_disk(disk: Disk, low_water_bytes: int) -> Iterator[Finding]:
    yield _type(disk)
    if disk.is_read_only:
        yield Finding(
            Level.ERROR,
            CHECK,
            f"{disk.path}: the file system is mounted read-only",
            "mount it writable; if it was, the kernel's log says what went wrong with the disk",
        )
    yield _room(disk, low_water_bytes)
    if disk.free_files == 0:
        yield Finding(Level.ERROR, CHECK, f"{disk.path}: no file can be made any more", "remove some files")


def _type(disk: Disk) -> Finding:
    name = disk.type or "unknown"
    if name in NETWORK_FILE_SYSTEMS:
        what = f"{disk.path}: is on a network file system ({name}), where no broker starts"
        return Finding(Level.ERROR, CHECK, what, "use a local disk with --data")
    if name in VOLATILE:
        what = f"{disk.path}: is in memory ({name}): every job is gone when the host goes down"
        return Finding(Level.WARNING, CHECK, what, "use a disk with --data, unless that is meant")
    if name in LAYERED:
        what = f"{disk.path}: is in a container's own layer ({name}) and goes with the container"
        return Finding(Level.WARNING, CHECK, what, "mount a volume there")
    if name in FOREIGN or name.startswith("fuse"):
        what = f"{disk.path}: is on {name}, of which nobody here knows whether a sync reaches the disk"
        return Finding(Level.WARNING, CHECK, what, "use a local disk with --data")
    if name not in TRIED:
        return Finding(Level.NOTE, CHECK, f"{disk.path}: is on a file system that was not tried ({name})")
    return Finding(Level.OK, CHECK, f"{disk.path}: is on {name}")


def _room(disk: Disk, low_water_bytes: int) -> Finding:
    """A broker takes its ballast on first, and then enqueues down to the mark."""
    ballast = 0 if disk.has_ballast else limits.BALLAST_BYTES
    free, mark = size_text(disk.free_bytes), size_text(low_water_bytes)
    refused = f"enqueues are refused until {size_text(taken_again_bytes(low_water_bytes))} are free again"
    if disk.free_bytes < low_water_bytes:
        what = f"{disk.path}: {free} are free, below the low-water mark of {mark}: {refused}"
        return Finding(Level.ERROR, CHECK, what, "free some, or lower the mark with --low-water")
    if disk.free_bytes < low_water_bytes + ballast:
        what = f"{disk.path}: {free} are free: no room for {size_text(ballast)} of ballast above the mark of {mark}"
        return Finding(Level.WARNING, CHECK, what, "free some")
    if disk.free_bytes < 2 * low_water_bytes + ballast:
        what = f"{disk.path}: {free} are free; below {mark} {refused}"
        return Finding(Level.WARNING, CHECK, what, "free some")
    return Finding(Level.OK, CHECK, f"{disk.path}: {free} are free")


def size_text(count: int) -> str:
    """Whole units, which is as exact as free space is."""
    for unit in (limits.GIB, limits.MIB):
        if count >= 10 * unit:
            return format_size(count // unit * unit)
    return format_size(count // limits.KIB * limits.KIB)
