"""The state directory: unsafe ones are refused by name, one broker owns it, a full disk has a way out."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.pools import children_of
from support.small_disk import MOUNTING, small_disk
from support.waiting import wait_until

from stoker.broker.files import (
    BALLAST,
    JOURNAL,
    LOCK,
    Ballast,
    OwnerLock,
    check_directory,
    check_files,
    file_system,
    free_bytes,
    prepare_directory,
    taken_again_bytes,
)
from stoker.broker.lasterror import LAST_ERROR
from stoker.broker.refusals import (
    DirectoryUnsafeError,
    DirectoryUnusableError,
    FileForeignError,
    NetworkFileSystemError,
    OwnedError,
    StartRefusedError,
)
from stoker.config.exits import Exit
from stoker.proto import limits

UID = os.geteuid()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# --- making and checking --------------------------------------------------------------------------------


def test_missing_directory_is_made_private_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "far" / "above" / "state"
    before = os.umask(0)
    try:
        prepare_directory(str(path), uid=UID)
    finally:
        os.umask(before)
    assert [mode(each) for each in (path, path.parent, path.parent.parent)] == [0o700] * 3


def test_existing_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    assert prepare_directory(str(tmp_path), uid=UID) == str(tmp_path.resolve())
    assert mode(tmp_path) == 0o750


def test_parent_may_be_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert prepare_directory(str(tmp_path / "link" / "state"), uid=UID) == str(tmp_path / "real" / "state")


def test_sticky_parent_that_all_may_write_is_safe(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    prepare_directory(str(tmp_path / "state"), uid=UID)


def writable_by_group(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def writable_by_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o707)


def below_one_that_all_may_write(path: Path) -> None:
    path.mkdir()
    path.parent.chmod(0o777)


def symbolic_link(path: Path) -> None:
    path.with_name("real").mkdir()
    path.symlink_to("real")


def plain_file(path: Path) -> None:
    path.touch()


def below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.touch()


UNSAFE: dict[Callable[[Path], object], type[StartRefusedError]] = {
    writable_by_group: DirectoryUnsafeError,
    writable_by_all: DirectoryUnsafeError,
    below_one_that_all_may_write: DirectoryUnsafeError,
    symbolic_link: DirectoryUnsafeError,
    plain_file: DirectoryUnusableError,
    below_a_file: DirectoryUnusableError,
    os.mkfifo: DirectoryUnusableError,
}


@pytest.mark.parametrize("make_unsafe", UNSAFE, ids=lambda make: make.__name__)
def test_unsafe_directory_is_refused_by_name(tmp_path: Path, make_unsafe: Callable[[Path], object]) -> None:
    path = tmp_path / "above" / "state"
    path.parent.mkdir(mode=0o755)
    make_unsafe(path)
    with pytest.raises(UNSAFE[make_unsafe]) as caught:
        prepare_directory(str(path), uid=UID)
    assert str(path.parent) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_word in Exit.__members__


def test_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnsafeError, match=f"belongs to uid {UID}, not to uid {UID + 1}"):
        prepare_directory(str(tmp_path), uid=UID + 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_directory_below_one_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(DirectoryUnsafeError, match="belongs to uid 12345, who could replace it"):
        prepare_directory(str(tmp_path / "state"), uid=UID)


def test_file_system_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 0:1 / / rw - ext4 /dev/a rw\n"
        "2 1 0:2 / /home rw shared:1 - nfs4 server:/home rw\n"
        "3 2 0:3 / /home/my\\040disk rw - xfs /dev/b rw\n"
        "4 1 0:4 / /srv rw - ext4 /dev/c rw\n"
        "5 1 0:5 / /srv rw - fuse.sshfs host: rw\n"
    )
    paths = ("/var/lib", "/home/me", "/homeless", "/home/my disk/state", "/srv")
    found = [file_system(path, str(mounts)) for path in paths]
    assert found == ["ext4", "nfs4", "ext4", "xfs", "fuse.sshfs"]


def test_directory_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {tmp_path} rw - nfs4 server:/x rw\n")
    with pytest.raises(NetworkFileSystemError, match=r"network file system \(nfs4\); use a local disk"):
        check_directory(str(tmp_path), uid=UID, mounts_path=str(mounts))


def test_check_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_directory(str(tmp_path / "none"), uid=UID)
    assert list(tmp_path.iterdir()) == []


def test_file_system_is_unknown_without_a_list_of_mounts(tmp_path: Path) -> None:
    assert file_system("/", str(tmp_path / "none")) == ""


def test_file_system_of_this_host_is_known() -> None:
    assert file_system("/proc") == "proc"


# --- the lock -------------------------------------------------------------------------------------------


def test_second_owner_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    lock = OwnerLock(str(tmp_path))
    with pytest.raises(OwnedError, match=f"pid {os.getpid()}") as caught:
        OwnerLock(str(tmp_path))
    assert caught.value.pid == os.getpid()
    assert caught.value.exit_word == "OWNED"
    lock.release()


def test_released_lock_may_be_taken(tmp_path: Path) -> None:
    OwnerLock(str(tmp_path)).release()
    OwnerLock(str(tmp_path)).release()


def test_number_left_by_a_dead_owner_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("1234567890\n")
    lock = OwnerLock(str(tmp_path))
    assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"
    lock.release()


def test_holder_without_a_number_is_still_a_holder(tmp_path: Path) -> None:
    lock = OwnerLock(str(tmp_path))
    (tmp_path / LOCK).write_text("")
    with pytest.raises(OwnedError, match="is held by another broker;") as caught:
        OwnerLock(str(tmp_path))
    assert caught.value.pid is None
    lock.release()


def test_lock_that_is_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / LOCK).symlink_to("elsewhere")
    with pytest.raises(DirectoryUnusableError, match=LOCK):
        OwnerLock(str(tmp_path))


def test_lock_file_is_private(tmp_path: Path) -> None:
    OwnerLock(str(tmp_path)).release()
    assert mode(tmp_path / LOCK) == 0o600


HOLD = (
    "import sys; from stoker.broker.files import OwnerLock; OwnerLock(sys.argv[1]); print('held', flush=True)"
)


@pytest.mark.slow
def test_lock_ends_with_its_process_and_is_not_inherited(tmp_path: Path) -> None:
    code = f"import subprocess\n{HOLD}\nsubprocess.run(['cat'])"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(OwnedError, match=f"pid {holder.pid}"):
        OwnerLock(str(tmp_path))
    # Until it is executed it has what its parent has.
    wait_until(lambda: children_of(holder.pid, "cat"), "cat runs")
    holder.kill()
    holder.wait()
    # `cat` lives on, without the lock, until its input ends.
    OwnerLock(str(tmp_path)).release()
    holder.communicate()


# --- what else bears our names ----------------------------------------------------------------------------

OF_OTHER_KINDS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a directory": Path.mkdir,
    "a symbolic link": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("kind", OF_OTHER_KINDS)
@pytest.mark.parametrize(
    "name", [LOCK, BALLAST, LAST_ERROR, f"{LAST_ERROR}.new", f"{JOURNAL}-wal", f"{JOURNAL}.new"]
)
def test_what_is_no_file_is_refused_by_its_name_and_kind(tmp_path: Path, name: str, kind: str) -> None:
    OF_OTHER_KINDS[kind](tmp_path / name)
    with pytest.raises(FileForeignError, match=f"/{name}: is {kind}, not a file; move it away"):
        check_files(str(tmp_path))
    assert os.path.lexists(tmp_path / name)


def test_files_of_ours_and_those_of_others_are_no_hindrance(tmp_path: Path) -> None:
    for name in (LOCK, BALLAST, f"{JOURNAL}-wal", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "others").mkdir()
    check_files(str(tmp_path))


# --- ballast --------------------------------------------------------------------------------------------


def test_ballast_takes_real_blocks_and_gives_them_back(tmp_path: Path) -> None:
    ballast = Ballast(str(tmp_path), 1 << 20)
    assert ballast.fill(spare_bytes=0)
    assert (tmp_path / BALLAST).stat().st_blocks * 512 >= 1 << 20
    assert mode(tmp_path / BALLAST) == 0o600
    assert ballast.release()
    assert not (tmp_path / BALLAST).exists()


def test_ballast_is_taken_once_and_thrown_once(tmp_path: Path) -> None:
    ballast = Ballast(str(tmp_path), 4096)
    assert ballast.fill(spare_bytes=0)
    before = (tmp_path / BALLAST).stat().st_ino
    assert ballast.fill(spare_bytes=0)
    assert (tmp_path / BALLAST).stat().st_ino == before
    assert ballast.release()
    assert not ballast.release()


def test_ballast_is_not_taken_at_the_cost_of_the_spare_room(tmp_path: Path) -> None:
    ballast = Ballast(str(tmp_path), 4096)
    assert not ballast.fill(spare_bytes=free_bytes(str(tmp_path)) * 2)
    assert not (tmp_path / BALLAST).exists()


def test_ballast_is_what_fits_on_a_small_disk_and_more_when_there_is_room(tmp_path: Path) -> None:
    ballast, path = Ballast(str(tmp_path), 64 * limits.MIB), tmp_path / BALLAST
    free = free_bytes(str(tmp_path))
    assert not ballast.fill(spare_bytes=free - limits.BALLAST_BYTES_MIN)
    assert not path.exists()
    assert ballast.fill(spare_bytes=free - 8 * limits.MIB)
    assert 2 * limits.MIB < path.stat().st_blocks * 512 < 6 * limits.MIB
    assert ballast.fill(spare_bytes=0)
    assert path.stat().st_size == 64 * limits.MIB


@MOUNTING
def test_full_storage_ends_with_as_much_free_as_is_told(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "8M") as disk:
        ballast = Ballast(str(disk))
        free = free_bytes(str(disk))
        mark = free - taken_again_bytes(0)
        assert taken_again_bytes(mark) == free
        assert not ballast.fill(spare_bytes=mark + 2)
        assert ballast.fill(spare_bytes=mark)


def test_ballast_that_is_on_board_counts_though_the_disk_is_full(tmp_path: Path) -> None:
    ballast = Ballast(str(tmp_path), 4096)
    ballast.fill(spare_bytes=0)
    assert ballast.fill(spare_bytes=free_bytes(str(tmp_path)) * 2)


@pytest.mark.parametrize("kind", OF_OTHER_KINDS)
def test_what_is_no_ballast_is_neither_waited_for_nor_removed(tmp_path: Path, kind: str) -> None:
    OF_OTHER_KINDS[kind](tmp_path / BALLAST)
    ballast = Ballast(str(tmp_path), 4096)
    assert not ballast.fill(spare_bytes=0)
    assert not ballast.release()
    assert os.path.lexists(tmp_path / BALLAST)


@pytest.mark.slow
def test_ballast_that_does_not_fit_is_left_ashore(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from stoker.broker.files import Ballast\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "sys.exit(Ballast(sys.argv[1], 1 << 20).fill(spare_bytes=0))"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=60)
    assert ended.returncode == 0
    assert not (tmp_path / BALLAST).exists()
