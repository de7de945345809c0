"""A process that has imported stoker and forks on demand: starting a daemon takes a tenth of the time.

What is forked then runs the very `stoker broker` and `stoker pool`, in a session of its own, with nothing
of the spawner but its modules. One that is to come from a fresh interpreter is exec'd instead.

The spawner has one thread and no event loop, so that it may fork. It reaps a child only when it is asked
for the next one; by then whoever asked for it holds a pidfd of it. It ends when its owner does, and all
that it forked is killed with it.
"""

import ctypes
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from support.paths import TESTS, python_path

_PRELOADED = (
    "stoker.cli.main",
    "stoker.cli.daemons",
    "stoker.cli.settingflags",
    "stoker.config.settings",
    "stoker.broker.main",
    "stoker.broker.sqlite",
    "stoker.worker.main",
    "stoker.client.sync",
    "stoker.client.bulk",
)

STOKER = "stoker.cli.main:main"
END_S = 10.0
_PR_SET_PDEATHSIG = 1
_PACKET_BYTES = 65_536


class Spawned:
    """A process that was forked here, by a handle that never means another one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def signal(self, number: signal.Signals) -> None:
        """Send it, if the process is still there."""
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return

    def has_ended(self, within_s: float = 0.0) -> bool:
        """Whether it has, waiting for it so long."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(within_s * 1000))

    def close(self) -> None:
        os.close(self._pidfd)


class Spawner:
    """The owner's side. Use as a context manager."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.faults.spawner", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=TESTS,
            env=os.environ | {"PYTHONPATH": python_path(TESTS)},
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._spawned: list[Spawned] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()
        for spawned in self._spawned:
            spawned.signal(signal.SIGKILL)
            spawned.has_ended(END_S)
            spawned.close()
        self._process.wait(END_S)

    def spawn(
        self,
        call: str,
        *arguments: str,
        log: Path,
        environ: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> Spawned:
        """Run `module:function` in a new process; its `sys.argv` is `call` and the arguments.

        `fresh`: in a new interpreter. The log takes its standard output and error.
        """
        order = {
            "call": call,
            "arguments": arguments,
            "log": str(log),
            "environ": dict(environ or {}),
            "fresh": fresh,
        }
        self._socket.send(json.dumps(order).encode())
        spawned = Spawned(int(self._socket.recv(_PACKET_BYTES)))
        self._spawned.append(spawned)
        return spawned


# --- the spawner itself ---------------------------------------------------------------------------------


def serve(sock: socket.socket) -> None:
    """Fork what is asked for until the owner is gone."""
    while order := sock.recv(_PACKET_BYTES):
        _reap()
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            sock.close()
            _run(json.loads(order), own)
        sock.send(str(pid).encode())


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            continue
    except ChildProcessError:
        return


def _run(order: Mapping[str, Any], parent: int) -> NoReturn:
    status = 1
    try:
        _settle_in(order, parent)
        if order["fresh"]:
            script = f"from {order['call'].replace(':', ' import ')} as call; call()"
            os.execv(sys.executable, [sys.executable, "-c", script, *order["arguments"]])
        sys.argv = [order["call"], *order["arguments"]]
        module, _, function = order["call"].partition(":")
        getattr(importlib.import_module(module), function)()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever it is, this process must end here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _settle_in(order: Mapping[str, Any], parent: int) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    os.environ.update(order["environ"])
    # Each shall have a dice of its own, as processes that nobody forked have.
    random.seed()


def main() -> None:
    """Serve the owner at the other end of the descriptor that is named on the command line."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in _PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve(sock)


if __name__ == "__main__":
    main()
