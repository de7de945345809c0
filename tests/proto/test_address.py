"""Paths: the order of flag, environment and defaults, and what is refused."""

import pytest

from stoker.proto.address import AddressError, socket_path, state_directory

USER = {"HOME": "/home/ada"}


@pytest.mark.parametrize(
    ("environ", "uid", "path"),
    [
        ({"STOKER_SOCKET": "/a", "RUNTIME_DIRECTORY": "/b"}, 1000, "/a"),
        ({"RUNTIME_DIRECTORY": "/b:/c", "XDG_RUNTIME_DIR": "/x"}, 1000, "/b/broker.sock"),
        ({"XDG_RUNTIME_DIR": "/run/user/1000"}, 1000, "/run/user/1000/stoker/broker.sock"),
        ({"XDG_RUNTIME_DIR": "/run/user/0"}, 0, "/run/user/0/stoker/broker.sock"),
        ({}, 0, "/run/stoker/broker.sock"),
        (USER, 1000, "/home/ada/.local/state/stoker/broker.sock"),
        (USER | {"STOKER_DATA": "/data"}, 1000, "/data/broker.sock"),
        (USER | {"STOKER_SOCKET": "", "RUNTIME_DIRECTORY": ""}, 0, "/run/stoker/broker.sock"),
    ],
)
def test_socket_is_where_the_first_of_flag_and_environment_says(
    environ: dict[str, str], uid: int, path: str
) -> None:
    assert socket_path(None, environ, uid) == path
    assert socket_path("/flag", environ, uid) == "/flag"


@pytest.mark.parametrize(
    ("environ", "uid", "path"),
    [
        ({"STOKER_DATA": "/a", "STATE_DIRECTORY": "/b"}, 1000, "/a"),
        ({"STATE_DIRECTORY": "/b:/c"}, 0, "/b"),
        ({"XDG_STATE_HOME": "/x"}, 0, "/var/lib/stoker"),
        (USER | {"XDG_STATE_HOME": "/x"}, 1000, "/x/stoker"),
        (USER, 1000, "/home/ada/.local/state/stoker"),
    ],
)
def test_state_is_where_the_first_of_flag_and_environment_says(
    environ: dict[str, str], uid: int, path: str
) -> None:
    assert state_directory(None, environ, uid) == path
    assert state_directory("flag", environ, uid) == "flag"


def test_a_relative_xdg_path_is_ignored() -> None:
    environ = USER | {"XDG_RUNTIME_DIR": "run", "XDG_STATE_HOME": "state"}
    assert socket_path(None, environ, 1000) == "/home/ada/.local/state/stoker/broker.sock"


def test_without_a_home_the_error_says_what_to_set() -> None:
    with pytest.raises(AddressError, match="HOME, XDG_STATE_HOME or STOKER_DATA"):
        state_directory(None, {}, 1000)


def test_a_path_of_107_bytes_is_taken() -> None:
    assert socket_path("/" + "a" * 106, {}, 1000) == "/" + "a" * 106


@pytest.mark.parametrize("path", ["/" + "a" * 107, "/" + "é" * 54])
def test_a_path_of_108_bytes_is_refused_with_path_length_and_limit(path: str) -> None:
    with pytest.raises(AddressError) as caught:
        socket_path(path, {}, 1000)
    assert path in str(caught.value)
    assert "107" in str(caught.value)
    assert "give a shorter one with --socket or STOKER_SOCKET" in str(caught.value)
    assert str(len(path.encode())) in str(caught.value)


@pytest.mark.parametrize("path", ["", "\0abstract"])
def test_an_empty_or_abstract_path_is_refused(path: str) -> None:
    with pytest.raises(AddressError, match="empty or holds a zero byte"):
        socket_path(path, {}, 1000)
    with pytest.raises(AddressError, match="empty or holds a zero byte"):
        state_directory(path, {}, 1000)
