"""Opening what may be no file: it is named, nobody waits for it, and nothing else is opened."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.broker.refusals import FileForeignError
from stoker.broker.regular import open_regular


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


MAKERS: list[tuple[Callable[[Path], object], str]] = [
    (Path.mkdir, "a directory"),
    (os.mkfifo, "a FIFO"),
    (lambda path: path.symlink_to("/dev/null"), "a symbolic link"),
    (listen, "a socket"),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("make", "what"), MAKERS, ids=[what for _, what in MAKERS])
def test_what_is_no_file_is_named(short_directory: Path, make: Callable[[Path], object], what: str) -> None:
    make(short_directory / "x")
    with pytest.raises(FileForeignError, match=f"x: is {what}, not a file; move it away"):
        open_regular(str(short_directory / "x"))


def test_device_is_not_opened() -> None:
    with pytest.raises(FileForeignError, match="is something else, not a file"):
        open_regular("/dev/tty")


@pytest.mark.timeout(20)
def test_pipe_that_is_swapped_in_at_the_last_moment_is_no_trap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    before = os.lstat(tmp_path / "file")

    def lstat(_: str) -> os.stat_result:
        return before

    monkeypatch.setattr(os, "lstat", lstat)
    with pytest.raises(FileForeignError, match="is a FIFO"):
        open_regular(str(tmp_path / "pipe"))


def test_file_is_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with open(open_regular(str(tmp_path / "file"))) as file:
        assert file.read() == "text"
