"""The socket: its directory, what is at its path, who listens there, and what that broker says."""

import os
import socket
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ..broker.files import taken_again_bytes
from ..broker.permission import hindrance
from ..broker.refusals import StartRefusedError
from ..broker.socket import LOCK_SUFFIX
from ..broker.storage import FULL_LASTS_MS
from ..client.sync import Client
from ..proto import limits
from ..proto.errors import RefusedError, StokerError
from .directory import is_directory, missing
from .disk import size_text
from .finding import Finding, Level

CHECK = "socket"
BROKER_CHECK = "broker"

ABANDONED = "nobody listens there: its broker is gone"

ANSWER_S = 5.0
"""A broker that has not said how it is by then is busy with something that it should not be."""


_HELD = {
    "draining": "it drains: no job is handed out any more",
    "paused_all": "all queues are paused: no job is handed out",
}
"""By the name that it has in a broker's report."""

_ADVICE = {
    "dead jobs that need a person": "`stoker jobs --state dead` lists them, `stoker kick` has them run again, "
    "`stoker drop` ends them",
    "a pool needs --commands": "start a pool with --commands",
    "no connected worker knows kind": "start a pool whose app has it; cancel the jobs if the name is a slip",
    "the disk is full": "free disk space",
    "its last reload failed": "mend the code and `stoker reload` again, which prints the reason",
    "differently": "have both pools load the same code",
    "there are more than these": "do what is said of these first",
}
"""By words of a broker's warning, the first that fits; another release may have others."""


_NAMES_SHOWN = 5


class Listening(NamedTuple):
    """Who listens at a path."""

    pid: int = 0
    uid: int = -1
    """-1 if nobody does."""
    trouble: str = ""
    """Why nobody could be reached, where something is there."""

    @property
    def is_there(self) -> bool:
        return self.uid >= 0


def listening(path: str) -> Listening:
    """Ask the kernel; nothing is sent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        try:
            sock.connect(path)
        except FileNotFoundError:
            return Listening()
        except ConnectionRefusedError:
            return Listening(trouble=ABANDONED)
        except BlockingIOError:
            return Listening(trouble="it takes no connections: its broker is stopped or overloaded")
        except OSError as error:
            return Listening(trouble=f"cannot be connected to: {error.strerror}")
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("@iII"))
        pid, uid, _ = struct.unpack("@iII", credentials)
        return Listening(pid, uid)


def check_socket(path: str, uid: int, found: Listening) -> Iterator[Finding]:
    """`uid` is whose broker is to listen there."""
    yield from _check_directory(os.path.dirname(path) or ".", uid)
    yield from _check_lock(path + LOCK_SUFFIX, uid)
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        yield Finding(Level.NOTE, CHECK, f"{path}: is not there: no broker listens")
        return
    except OSError as error:
        yield Finding(Level.ERROR, CHECK, f"{path}: cannot be looked at: {error.strerror}")
        return
    if not stat.S_ISSOCK(status.st_mode):
        yield Finding(
            Level.ERROR,
            CHECK,
            f"{path}: is no socket, so no broker starts",
            "remove it, or choose another with --socket",
        )
    elif status.st_uid != uid:
        yield Finding(
            Level.ERROR,
            CHECK,
            f"{path}: is a socket of uid {status.st_uid}, not of uid {uid}",
            _about_stranger(status.st_uid, found),
        )
    elif found.trouble:
        advice = "the next broker replaces it; start one" if found.trouble == ABANDONED else ""
        yield Finding(Level.WARNING, CHECK, f"{path}: {found.trouble}", advice)
    elif found.uid not in (uid, 0):
        yield Finding(
            Level.ERROR,
            CHECK,
            f"{path}: pid {found.pid} listens there and runs as uid {found.uid}, not as uid {uid}",
            "end it, and find out how it came there",
        )
    else:
        mode = stat.S_IMODE(status.st_mode)
        yield Finding(
            Level.OK, CHECK, f"{path}: pid {found.pid} of uid {found.uid} listens there (mode {mode:04o})"
        )


def _about_stranger(owner: int, found: Listening) -> str:
    """What to do about the socket of another user, which somebody may be serving."""
    if found.is_there or found.trouble != ABANDONED:
        return (
            f"if that broker is the right one, run this as uid {owner} or as root; else use another --socket"
        )
    return "remove it, or choose another with --socket"


def _check_directory(path: str, uid: int) -> Iterator[Finding]:
    try:
        is_there = is_directory(path, uid)
    except StartRefusedError as error:
        # Its advice is the state directory's.
        yield Finding(Level.ERROR, CHECK, str(error).replace("--data", "--socket"))
    except OSError as error:
        yield Finding(Level.ERROR, CHECK, f"{path}: cannot be looked at: {error.strerror}")
    else:
        ours = Finding(Level.OK, CHECK, f"{path}: nobody but uid {uid} can replace the socket")
        yield ours if is_there else missing(path, CHECK)


def _check_lock(path: str, uid: int) -> Iterator[Finding]:
    """Of the file that a broker locks before it makes its socket. One that is not there, it makes."""
    try:
        trouble = hindrance(path, uid)
    except OSError:
        # What keeps it from being looked at is told of its directory.
        return
    if trouble is not None:
        what = f"{path}: {trouble.what}: no broker can lock it, and so none starts"
        yield Finding(Level.ERROR, CHECK, what, trouble.advice)


def ask(path: str) -> Mapping[str, Any] | StokerError:
    """What the broker says of itself, or why it does not."""
    client = Client(path, timeout_s=ANSWER_S)
    try:
        return client.status()
    except StokerError as error:
        return error
    finally:
        client.close()


def check_broker(said: Mapping[str, Any] | StokerError, data: str | None) -> Iterator[Finding]:
    """What the running broker's answer tells of its health. `data` is where its directory should be."""
    if isinstance(said, RefusedError):
        what = f"answers, but refuses to say how it is: {said}"
        yield Finding(Level.WARNING, BROKER_CHECK, what, "run this as a user who may ask, or as its owner")
        return
    if isinstance(said, StokerError):
        yield Finding(Level.ERROR, BROKER_CHECK, f"does not answer: {said}", "see its log")
        return
    theirs = str(said.get("data") or "")
    if data is not None and theirs and theirs != os.path.realpath(data):
        what = f"the broker that runs has its data in {theirs}, not in {data}"
        yield Finding(Level.WARNING, BROKER_CHECK, what, "name that with --data, or its socket with --socket")
    yield from _check_storage(_mapping(said.get("storage")))
    yield from _check_held(said)
    for warning in map(str, _listing(said.get("warnings"))):
        advice = next(
            (advice for words, advice in _ADVICE.items() if words in warning), "see `stoker status`"
        )
        yield Finding(Level.WARNING, BROKER_CHECK, warning, advice)
    yield Finding(
        Level.OK, BROKER_CHECK, f"stoker {said.get('version', '?')} answers, epoch {said.get('epoch', '?')}"
    )


def _check_storage(storage: Mapping[str, Any]) -> Iterator[Finding]:
    if not storage.get("full"):
        return
    what = "the storage is full: enqueues are refused, everything else goes on"
    advice, mark = "free disk space", storage.get("low_water_bytes")
    if isinstance(mark, int):
        enough, seconds = size_text(taken_again_bytes(mark)), FULL_LASTS_MS // limits.SECOND_MS
        advice += (
            f"; with {enough} free, enqueues are taken again, {seconds} s after they were refused or later"
        )
    yield Finding(Level.ERROR, BROKER_CHECK, what, advice)


def _check_held(said: Mapping[str, Any]) -> Iterator[Finding]:
    """What somebody has asked for and may have forgotten: jobs wait for it."""
    for name, what in _HELD.items():
        if said.get(name):
            yield Finding(Level.WARNING, BROKER_CHECK, what, "`stoker resume` ends it")
    queues = _mapping(said.get("queues"))
    paused = [name for name in sorted(queues) if _mapping(queues[name]).get("paused")]
    if paused:
        more = f" and {len(paused) - _NAMES_SHOWN} more" if len(paused) > _NAMES_SHOWN else ""
        what = f"paused queues, whose jobs wait: {', '.join(paused[:_NAMES_SHOWN])}{more}"
        yield Finding(Level.NOTE, BROKER_CHECK, what, "`stoker resume QUEUE` ends it")


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _listing(value: object) -> Sequence[Any]:
    return cast("list[Any]", value) if isinstance(value, list | tuple) else ()
