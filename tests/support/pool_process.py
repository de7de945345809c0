"""A process that takes itself for a pool, and its entry in `status`; for what is sent to pools."""

import signal
import subprocess
import sys
from typing import Any

from stoker.worker import process

PROGRAM = """
import signal, sys
from stoker.worker import process
process.set_name(sys.argv[1])
def hang_up(*_):
    print("hung up", flush=True)
    if sys.argv[2] == "ends":
        sys.exit(7)
signal.signal(signal.SIGHUP, hang_up)
print("ready", flush=True)
while True:
    signal.pause()
"""


def pool_entry(pid: int, **fields: Any) -> dict[str, Any]:
    """What `status` has of a pool in that process."""
    found = process.stat(pid)
    assert found is not None
    identity = f"{process.boot_id()}/{process.pid_namespace()}/{pid}/{found.start_ticks}/nonce-00"
    return {"name": "tasks:app", "pid": pid, "identity": identity, "code": "1-5d41402a"} | fields


def start_pool_process(name: str = "stoker-pool", *, then: str = "lives") -> subprocess.Popen[bytes]:
    """It says so when it gets a SIGHUP, and `lives` on or `ends`."""
    command = [sys.executable, "-c", PROGRAM, name, then]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def was_hung_up(child: subprocess.Popen[bytes]) -> bool:
    """Whether it got a SIGHUP; it is ended for that."""
    child.send_signal(signal.SIGTERM)
    assert child.stdout is not None
    return child.stdout.read() == b"hung up\n"
