"""The listening socket: where it may be made, what it replaces, and who keeps it."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.listening import listens

from stoker.broker.refusals import DirectoryUnsafeError, OwnedError, StartRefusedError
from stoker.broker.socket import ListeningSocket, SocketUnusableError


@pytest.fixture
def listening(socket_path: str) -> Iterator[ListeningSocket]:
    place = ListeningSocket(socket_path)
    yield place
    place.close()


def test_socket_accepts_connections(listening: ListeningSocket) -> None:
    assert listens(listening.path)


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


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
@pytest.mark.parametrize("mode", [0o600, 0o620, 0o660, 0o666])
def test_mode_is_the_one_asked_for_under_every_umask(socket_path: str, mode: int, umask: int) -> None:
    old = os.umask(umask)
    try:
        place = ListeningSocket(socket_path, mode=mode)
    finally:
        os.umask(old)
    found = stat.S_IMODE(os.lstat(socket_path).st_mode)
    place.close()
    assert found == mode


@pytest.mark.parametrize(("mode", "of_directory"), [(0o600, 0o700), (0o660, 0o710), (0o666, 0o711)])
def test_directory_that_is_made_lets_those_pass_who_may_connect(
    short_directory: Path, mode: int, of_directory: int
) -> None:
    place = ListeningSocket(str(short_directory / "run" / "broker.sock"), mode=mode)
    assert stat.S_IMODE((short_directory / "run").stat().st_mode) == of_directory
    assert place.closed_to() is None
    place.close()


@pytest.mark.parametrize(("mode", "of_directory"), [(0o660, 0o700), (0o666, 0o710)])
def test_directory_that_is_there_is_left_as_it_is_and_named(
    short_directory: Path, mode: int, of_directory: int
) -> None:
    short_directory.chmod(of_directory)
    place = ListeningSocket(str(short_directory / "broker.sock"), mode=mode)
    assert f"{short_directory} has mode {of_directory:04o}" in (place.closed_to() or "")
    assert stat.S_IMODE(short_directory.stat().st_mode) == of_directory
    place.close()


ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to any group")
GROUP = 54321


@ROOT_ONLY
def test_socket_and_the_directory_made_for_it_get_the_group(short_directory: Path) -> None:
    path = short_directory / "run" / "broker.sock"
    place = ListeningSocket(str(path), mode=0o660, gid=GROUP)
    assert (path.lstat().st_gid, path.parent.stat().st_gid) == (GROUP, GROUP)
    assert place.closed_to() is None
    place.close()


@ROOT_ONLY
def test_directory_of_another_group_is_named(short_directory: Path) -> None:
    short_directory.chmod(0o710)
    place = ListeningSocket(str(short_directory / "broker.sock"), mode=0o660, gid=GROUP)
    assert place.closed_to() is not None
    place.close()


@ROOT_ONLY
def test_socket_bound_anew_has_mode_and_group_again(socket_path: str) -> None:
    place = ListeningSocket(socket_path, mode=0o660, gid=GROUP)
    os.unlink(socket_path)
    place.rebind().close()
    found = os.lstat(socket_path)
    place.close()
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, GROUP)


IN_NO_GROUP = """
import os, sys
from stoker.broker.socket import ListeningSocket, SocketUnusableError
os.setgroups([])
os.setresgid(54322, 54322, 54322)
os.setresuid(54322, 54322, 54322)
try:
    ListeningSocket(sys.argv[1], mode=0o660, gid=54321)
except SocketUnusableError as error:
    print(error)
"""


@ROOT_ONLY
@pytest.mark.slow
def test_group_that_the_user_is_not_in_is_refused_and_nothing_listens(short_directory: Path) -> None:
    os.chown(short_directory, 54322, 54322)
    path = str(short_directory / "broker.sock")
    ran = subprocess.run(
        [sys.executable, "-c", IN_NO_GROUP, path], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith(f"{path}: cannot be given to group 54321")
    assert not os.path.lexists(path)


WATCHED = """
import os, stat, sys
from stoker.broker.socket import ListeningSocket
path = sys.argv[1]
def look(event, arguments):
    if event in ("os.chmod", "os.chown") and arguments[0] == path:
        found = os.lstat(path)
        print(event, f"{stat.S_IMODE(found.st_mode):o}", found.st_gid)
os.umask(0)
sys.addaudithook(look)
ListeningSocket(path, mode=0o666, gid=54321).close()
"""


@ROOT_ONLY
@pytest.mark.slow
def test_socket_is_never_open_to_more_than_were_asked_for(socket_path: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WATCHED, socket_path], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == [f"os.chown 600 {os.getegid()}", f"os.chmod 600 {GROUP}"]


def test_path_of_107_bytes_works(short_directory: Path) -> None:
    path = str(short_directory / ("x" * (106 - len(str(short_directory)))))
    assert len(path) == 107
    place = ListeningSocket(path)
    assert listens(path)
    place.close()


def test_path_of_108_bytes_is_refused_by_name(short_directory: Path) -> None:
    path = str(short_directory / ("x" * (107 - len(str(short_directory)))))
    with pytest.raises(SocketUnusableError, match=path):
        ListeningSocket(path)


def test_second_broker_at_the_path_is_refused(listening: ListeningSocket) -> None:
    with pytest.raises(OwnedError, match=listening.path):
        ListeningSocket(listening.path)
    assert listens(listening.path)


def test_stale_socket_is_replaced(socket_path: str) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(socket_path)
    place = ListeningSocket(socket_path)
    assert listens(socket_path)
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
    assert listens(listening.path)


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


def test_socket_is_not_made_again_where_others_may_write_by_now(listening: ListeningSocket) -> None:
    os.unlink(listening.path)
    os.chmod(os.path.dirname(listening.path), 0o777)
    with pytest.raises(DirectoryUnsafeError):
        listening.rebind()
    assert not os.path.lexists(listening.path)
    assert listening.listener.fileno() >= 0


def test_lock_that_is_a_link_is_not_followed(socket_path: str, tmp_path: Path) -> None:
    Path(f"{socket_path}.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SocketUnusableError, match="lock"):
        ListeningSocket(socket_path)
    assert list(tmp_path.iterdir()) == []
