"""The listening socket: where it may be made, what it replaces, and who keeps it."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.broker.refusals import DirectoryUnsafeError, OwnedError, StartRefusedError
from stoker.broker.socket import ListeningSocket, SocketUnusableError


def connects(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


@pytest.fixture
def listening(socket_path: str) -> Iterator[ListeningSocket]:
    place = ListeningSocket(socket_path)
    yield place
    place.close()


def test_socket_accepts_connections(listening: ListeningSocket) -> None:
    assert connects(listening.path)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_mode_is_private_under_every_umask(socket_path: str, umask: int) -> None:
    old = os.umask(umask)
    try:
        place = ListeningSocket(socket_path)
    finally:
        os.umask(old)
    mode = stat.S_IMODE(os.lstat(socket_path).st_mode)
    place.close()
    assert mode & 0o177 == 0


def test_directory_is_made_private(short_directory: Path) -> None:
    path = short_directory / "run" / "broker.sock"
    ListeningSocket(str(path)).close()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_path_of_107_bytes_works(short_directory: Path) -> None:
    path = str(short_directory / ("x" * (106 - len(str(short_directory)))))
    assert len(path) == 107
    place = ListeningSocket(path)
    assert connects(path)
    place.close()


def test_path_of_108_bytes_is_refused_by_name(short_directory: Path) -> None:
    path = str(short_directory / ("x" * (107 - len(str(short_directory)))))
    with pytest.raises(SocketUnusableError, match=path):
        ListeningSocket(path)


def test_second_broker_at_the_path_is_refused(listening: ListeningSocket) -> None:
    with pytest.raises(OwnedError, match=listening.path):
        ListeningSocket(listening.path)
    assert connects(listening.path)


def test_stale_socket_is_replaced(socket_path: str) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(socket_path)
    place = ListeningSocket(socket_path)
    assert connects(socket_path)
    place.close()


def make_file(path: Path) -> None:
    path.write_text("precious")


def make_directory(path: Path) -> None:
    path.mkdir()


def make_symlink(path: Path) -> None:
    path.with_name("target").write_text("precious")
    path.symlink_to(path.with_name("target"))


def make_dangling_symlink(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


@pytest.mark.parametrize("make", [make_file, make_directory, make_symlink, make_dangling_symlink])
def test_what_is_no_socket_is_never_removed(socket_path: str, make: object) -> None:
    assert callable(make)
    make(Path(socket_path))
    before = os.lstat(socket_path)
    with pytest.raises(SocketUnusableError, match=socket_path):
        ListeningSocket(socket_path)
    assert os.lstat(socket_path).st_ino == before.st_ino


def test_directory_that_others_may_write_is_refused(short_directory: Path) -> None:
    short_directory.chmod(0o777)
    with pytest.raises(DirectoryUnsafeError, match=str(short_directory)):
        ListeningSocket(str(short_directory / "broker.sock"))


def test_refusal_leaves_the_path_to_the_next_starter(socket_path: str) -> None:
    Path(socket_path).mkdir()
    with pytest.raises(StartRefusedError):
        ListeningSocket(socket_path)
    Path(socket_path).rmdir()
    ListeningSocket(socket_path).close()


def test_removed_socket_is_noticed_and_made_again(listening: ListeningSocket) -> None:
    os.unlink(listening.path)
    assert not listening.is_in_place()
    listening.rebind().close()
    assert listening.is_in_place()
    assert connects(listening.path)


def test_replaced_socket_is_noticed(listening: ListeningSocket) -> None:
    os.unlink(listening.path)
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(listening.path)
        assert not listening.is_in_place()


def test_file_in_its_place_is_kept_and_the_old_listener_too(listening: ListeningSocket) -> None:
    os.unlink(listening.path)
    make_file(Path(listening.path))
    with pytest.raises(SocketUnusableError):
        listening.rebind()
    assert Path(listening.path).read_text() == "precious"
    assert listening.listener.fileno() >= 0


def test_close_removes_its_own_socket_and_no_other(socket_path: str) -> None:
    place = ListeningSocket(socket_path)
    os.unlink(socket_path)
    make_file(Path(socket_path))
    place.close()
    assert Path(socket_path).read_text() == "precious"
    os.unlink(socket_path)
    ListeningSocket(socket_path).close()
    assert not os.path.lexists(socket_path)
