"""Names in the state directory: what a worker's file is called, whose a file is, who the broker is."""

from pathlib import Path

import pytest

from stoker.proto import limits
from stoker.proto.messages import STDERR, STDOUT
from stoker.proto.statefiles import LOCK, broker_pid, file_name, number_of


def test_file_is_named_by_numbers_and_stream() -> None:
    assert (file_name(12, 3, STDOUT), file_name(12, 3, STDERR)) == ("12-3.stdout", "12-3.stderr")


@pytest.mark.parametrize("number", [1, 12, limits.INTEGER_MAX])
def test_number_is_found_in_the_name(number: int) -> None:
    assert number_of(file_name(number, 1, STDOUT)) == number


@pytest.mark.parametrize(
    "name",
    [
        "",
        "12",
        "12-3",
        "12-3.log",
        "12-3.stdout.gz",
        "a-1.stdout",
        "-1.stdout",
        "12-.stderr",
        "+1-1.stdout",
        "1 -1.stdout",
        "\uff11-1.stdout",
        f"{10**20}-1.stdout",
    ],
)
def test_foreign_name_is_nobodys(name: str) -> None:
    assert number_of(name) is None


@pytest.mark.parametrize(("written", "pid"), [(b"4711\n", 4711), (b"", 0), (b"x", 0)])
def test_broker_is_whom_the_lock_names(tmp_path: Path, written: bytes, pid: int) -> None:
    (tmp_path / LOCK).write_bytes(written)
    assert broker_pid(str(tmp_path)) == pid


def test_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"4711\n")
    (tmp_path / LOCK).symlink_to("other")
    with pytest.raises(OSError, match="symbolic links"):
        broker_pid(str(tmp_path))
