"""What programs say, kept in files: bytes up to the cap, nothing through a link, and a disk that is full."""

import os
import resource
import socket
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.other_user import ROOT_ONLY
from support.small_disk import MOUNTING, small_disk

from stoker.proto import limits
from stoker.proto.messages import STDERR, STDOUT
from stoker.proto.statefiles import LOCK, OUTPUT
from stoker.worker.commands.files import OutputDirectory, OutputFiles, nowhere, peer_pid
from stoker.worker.commands.program import ProgramError

CAP = limits.KEEP_OUTPUT_BYTES_MIN


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A state directory as a broker leaves it."""
    return prepared(tmp_path / "data")


def prepared(data: Path, pid: int = 4711) -> Path:
    data.mkdir(exist_ok=True)
    (data / OUTPUT).mkdir(mode=0o700)
    (data / LOCK).write_text(f"{pid}\n")
    return data


def opened(data: Path, number: int = 5, attempt: int = 1, low_water_bytes: int = 0) -> OutputFiles:
    return OutputDirectory(os.fsencode(data), low_water_bytes).open(number, attempt, CAP)


def test_each_stream_has_a_private_file_of_its_own(data: Path) -> None:
    umask = os.umask(0o777)
    try:
        files = opened(data)
    finally:
        os.umask(umask)
    with closing(files):
        files.add(STDOUT, b"out")
        files.add(STDERR, b"err")
    paths = [data / OUTPUT / "5-1.stdout", data / OUTPUT / "5-1.stderr"]
    assert [path.read_bytes() for path in paths] == [b"out", b"err"]
    assert [path.stat().st_mode & 0o7777 for path in paths] == [0o600, 0o600]


@pytest.mark.parametrize("sizes", [[CAP], [CAP - 1, 2], [CAP + 1], [CAP, 700], [1] * (CAP + 3)], ids=str)
def test_what_is_beyond_the_cap_is_counted_and_all_before_it_is_there(data: Path, sizes: list[int]) -> None:
    said = os.urandom(sum(sizes))
    with closing(opened(data)) as files:
        at = 0
        for size in sizes:
            files.add(STDOUT, said[at : at + size])
            at += size
    assert (data / OUTPUT / "5-1.stdout").read_bytes() == said[:CAP]
    assert files.result["stdout_dropped_bytes"] == len(said) - CAP
    assert files.result["stderr_dropped_bytes"] == 0


def test_files_are_named_where_they_are_and_what_is_missing_is_said(data: Path) -> None:
    with closing(opened(data)) as files:
        files.add(STDOUT, b"x" * (CAP + 5))
    path = str(data / OUTPUT / "5-1")
    assert files.result["stdout_file"] == f"{path}.stdout"
    assert files.notes == [
        f"its stdout is in {path}.stdout, without the last 5 bytes: more than 1KiB",
        f"its stderr is in {path}.stderr",
    ]


def test_same_attempt_begins_anew(data: Path) -> None:
    for said in (b"the first time", b"again"):
        with closing(opened(data)) as files:
            files.add(STDOUT, said)
    assert (data / OUTPUT / "5-1.stdout").read_bytes() == b"again"


def test_as_many_attempts_are_kept_as_there_are_records_of(data: Path) -> None:
    for attempt in range(1, limits.OUTCOMES_KEPT + 3):
        opened(data, attempt=attempt).close()
    assert len(list((data / OUTPUT).iterdir())) == 2 * limits.OUTCOMES_KEPT
    assert not (data / OUTPUT / "5-2.stdout").exists()


def test_link_in_place_of_a_file_is_replaced_and_not_followed(data: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (data / OUTPUT / "5-1.stdout").symlink_to(tmp_path / "precious")
    with closing(opened(data)) as files:
        files.add(STDOUT, b"said")
    assert (tmp_path / "precious").read_text() == "kept"
    assert not (data / OUTPUT / "5-1.stdout").is_symlink()


def link_in_place_of_the_directory(data: Path) -> None:
    (data / OUTPUT).rename(data / "real")
    (data / OUTPUT).symlink_to("real")


def file_in_place_of_the_directory(data: Path) -> None:
    (data / OUTPUT).rmdir()
    (data / OUTPUT).touch()


UNUSABLE: dict[str, Callable[[Path], object]] = {
    "link": link_in_place_of_the_directory,
    "missing": lambda data: (data / OUTPUT).rmdir(),
    "file": file_in_place_of_the_directory,
    "no broker": lambda data: (data / LOCK).unlink(),
    "others may look": lambda data: (data / OUTPUT).chmod(0o750),
}


@pytest.mark.parametrize("spoil", UNUSABLE.values(), ids=UNUSABLE)
def test_directory_that_is_not_as_a_broker_makes_it_is_refused(
    data: Path, spoil: Callable[[Path], object]
) -> None:
    spoil(data)
    with pytest.raises(ProgramError, match="run it as the user of its broker"):
        opened(data)


@ROOT_ONLY
def test_directory_of_another_user_is_refused_by_root_too(data: Path) -> None:
    os.chown(data / OUTPUT, 54321, 54321)
    with pytest.raises(ProgramError, match="uid 54321"):
        opened(data)


def test_directory_of_another_broker_is_refused(data: Path) -> None:
    directory = OutputDirectory(os.fsencode(data), 0)
    directory.broker_pid = 4712
    with pytest.raises(ProgramError, match="is not that of this pool's broker"):
        directory.open(5, 1, CAP)
    assert list((data / OUTPUT).iterdir()) == []


@pytest.mark.parametrize(("written", "peer"), [("4711", 4711), ("", 4711), ("4711", 0)])
def test_broker_that_cannot_be_told_from_another_is_believed(data: Path, written: str, peer: int) -> None:
    (data / LOCK).write_text(written)
    directory = OutputDirectory(os.fsencode(data), 0)
    directory.broker_pid = peer
    directory.open(5, 1, CAP).close()


def test_peer_is_who_listens(short_directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(short_directory / "s"))
        listener.listen()
        client.setblocking(False)
        client.connect(str(short_directory / "s"))
        assert peer_pid(client.fileno()) == os.getpid()
        assert client.fileno() >= 0 and not client.getblocking()


def test_pool_that_knows_no_directory_refuses() -> None:
    with pytest.raises(ProgramError, match="does not know the state directory"):
        nowhere(CAP)


def test_nothing_is_written_below_the_low_water_mark(data: Path) -> None:
    with closing(opened(data, low_water_bytes=limits.INTEGER_MAX)) as files:
        files.add(STDOUT, b"said")
        files.add(STDOUT, b"more")
    assert (data / OUTPUT / "5-1.stdout").read_bytes() == b""
    assert files.result["stdout_dropped_bytes"] == 8
    assert "are free" in files.result["stdout_file_error"]


@contextmanager
def longest_file(size: int) -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_write_that_is_cut_short_leaves_a_beginning_without_a_hole(data: Path) -> None:
    with closing(opened(data)) as files:
        with longest_file(600):
            files.add(STDOUT, b"a" * 500)
            files.add(STDOUT, b"b" * 200)
        files.add(STDOUT, b"c")
    assert (data / OUTPUT / "5-1.stdout").read_bytes() == b"a" * 500 + b"b" * 100
    assert files.result["stdout_dropped_bytes"] == 101
    assert files.result["stdout_file_error"] == "EFBIG: File too large"


@MOUNTING
def test_full_disk_ends_the_file_and_not_the_program(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as place:
        directory = OutputDirectory(os.fsencode(prepared(place)), 0)
        with closing(directory.open(5, 1, limits.MIB)) as files:
            for _ in range(10):
                files.add(STDOUT, b"x" * 20_000)
        kept_bytes = (place / OUTPUT / "5-1.stdout").stat().st_size
    assert 0 < kept_bytes < 65_536
    assert files.result["stdout_dropped_bytes"] == 200_000 - kept_bytes
    assert files.notes[0].endswith(" bytes: ENOSPC: No space left on device")


@MOUNTING
def test_file_that_finds_no_room_to_be_made_is_no_end_of_the_program(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1M,nr_inodes=4") as place, closing(opened(prepared(place))) as files:
        files.add(STDERR, b"said")
    assert files.result["stderr_file_error"] == "ENOSPC: No space left on device"
    assert files.result["stderr_dropped_bytes"] == 4


def test_descriptors_are_given_back(data: Path) -> None:
    before = os.listdir("/proc/self/fd")
    opened(data).close()
    (data / OUTPUT / "5-1.stderr").unlink()
    (data / OUTPUT / "5-1.stderr").mkdir()
    files = opened(data)
    files.close()
    assert "stderr_file_error" in files.result
    assert os.listdir("/proc/self/fd") == before
