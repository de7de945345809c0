"""Where the broker's socket and its state directory are: one answer for client and broker alike.

Pure: environment and uid are arguments, and no file is looked at. Whether a directory is safe to
use is for whoever opens it.
"""

import os
from collections.abc import Mapping

from . import limits

SOCKET_NAME = "broker.sock"


class AddressError(ValueError):
    """A path that cannot be used, or none to be had. The message names the path and the limit."""


def socket_path(flag: str | None, environ: Mapping[str, str], uid: int) -> str:
    """The broker's socket: the flag, `STOKER_SOCKET`, a runtime directory, else the state directory."""
    path = flag if flag is not None else _socket_from_environment(environ, uid)
    size = len(os.fsencode(path))
    if size > limits.SOCKET_PATH_BYTES_MAX:
        raise AddressError(
            f"socket path of {size} bytes, over the limit of {limits.SOCKET_PATH_BYTES_MAX}"
            f" that the kernel sets; give a shorter one with --socket or STOKER_SOCKET: {path}"
        )
    return _checked(path, "socket path")


def state_directory(flag: str | None, environ: Mapping[str, str], uid: int) -> str:
    """The broker's directory: the flag, `STOKER_DATA`, `STATE_DIRECTORY`, root's own, else the user's."""
    if flag is not None:
        return _checked(flag, "state directory")
    given = environ.get("STOKER_DATA") or _first(environ, "STATE_DIRECTORY")
    if given:
        return _checked(given, "state directory")
    if uid == 0:
        return "/var/lib/stoker"
    return os.path.join(_user_state(environ), "stoker")


def _socket_from_environment(environ: Mapping[str, str], uid: int) -> str:
    given = environ.get("STOKER_SOCKET")
    if given:
        return given
    runtime = _first(environ, "RUNTIME_DIRECTORY")
    if runtime:
        return os.path.join(runtime, SOCKET_NAME)
    user_runtime = _absolute(environ, "XDG_RUNTIME_DIR")
    if user_runtime:
        return os.path.join(user_runtime, "stoker", SOCKET_NAME)
    if uid == 0:
        return os.path.join("/run/stoker", SOCKET_NAME)
    return os.path.join(state_directory(None, environ, uid), SOCKET_NAME)


def _first(environ: Mapping[str, str], name: str) -> str:
    """systemd writes several directories with colons between them; the first is ours."""
    return environ.get(name, "").split(":", 1)[0]


def _absolute(environ: Mapping[str, str], name: str) -> str:
    """The XDG rules say that a relative path in these variables is to be ignored."""
    value = environ.get(name, "")
    return value if value.startswith("/") else ""


def _user_state(environ: Mapping[str, str]) -> str:
    state = _absolute(environ, "XDG_STATE_HOME")
    if state:
        return state
    home = _absolute(environ, "HOME")
    if not home:
        raise AddressError("no place for files: set HOME, XDG_STATE_HOME or STOKER_DATA")
    return os.path.join(home, ".local", "state")


def _checked(path: str, what: str) -> str:
    # An empty path, or one with a zero byte, means something else to the kernel: an abstract
    # socket has no permissions at all.
    if not path or "\0" in path:
        raise AddressError(f"{what} is empty or holds a zero byte: {path!r}")
    return path
