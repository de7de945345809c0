"""File systems that do not keep what is synced, and too little room, are named."""

from pathlib import Path

import pytest

from stoker.doctor.disk import Disk, check_disk, disk_of
from stoker.doctor.finding import Finding, Level, worst
from stoker.proto import limits

LOW = limits.LOW_WATER_BYTES
GOOD = Disk("/d", "ext4", 100 * limits.GIB, 1000, is_read_only=False, has_ballast=True)


def said(disk: Disk) -> list[Finding]:
    return [finding for finding in check_disk(disk, LOW) if finding.level is not Level.OK]


def test_disk_with_room_is_good() -> None:
    assert [finding.what for finding in check_disk(GOOD, LOW)] == ["/d: is on ext4", "/d: 100GiB are free"]
    assert said(GOOD) == []


@pytest.mark.parametrize(
    ("type", "level", "word"),
    [
        ("nfs4", Level.ERROR, "network file system (nfs4)"),
        ("tmpfs", Level.WARNING, "in memory"),
        ("overlay", Level.WARNING, "container's own layer"),
        ("9p", Level.WARNING, "whether a sync reaches the disk"),
        ("fuse.other", Level.WARNING, "whether a sync reaches the disk"),
        ("newfs", Level.NOTE, "was not tried (newfs)"),
        ("", Level.NOTE, "was not tried (unknown)"),
    ],
)
def test_file_system_that_is_unfit_or_doubtful_is_named(type: str, level: Level, word: str) -> None:
    (finding,) = said(GOOD._replace(type=type))
    assert finding.level is level and word in finding.what


@pytest.mark.parametrize(
    ("free", "has_ballast", "level", "word"),
    [
        (LOW - 1, True, Level.ERROR, "enqueues are refused until 34MiB are free again"),
        (LOW, False, Level.WARNING, "no room for 16MiB of ballast"),
        (2 * LOW - 1, True, Level.WARNING, "below 32MiB enqueues are refused until 34MiB are free again"),
    ],
)
def test_short_room_is_told(free: int, has_ballast: bool, level: Level, word: str) -> None:
    (finding,) = said(GOOD._replace(free_bytes=free, has_ballast=has_ballast))
    assert finding.level is level and word in finding.what


@pytest.mark.parametrize("disk", [GOOD._replace(is_read_only=True), GOOD._replace(free_files=0)])
def test_disk_that_takes_no_file_is_an_error(disk: Disk) -> None:
    assert worst(said(disk)) is Level.ERROR


def test_disk_of_this_host_is_known(tmp_path: Path) -> None:
    disk = disk_of(str(tmp_path), has_ballast=False)
    assert disk.free_bytes > 0 and disk.type
