"""Owners of leases after a restart: which of them are proved dead?

The journal names the holder of each lease, and its supervisor, as `boot_id/pid_namespace/pid/start_ticks/nonce`. Only
two proofs count: the host was started anew since, or the holder's pid, looked up in the very PID
namespace it was named in, is gone, a zombie, or another process. Everything else is "not known",
and the reconnect grace decides.
"""

import os
from collections.abc import Callable

from .clock import boot_id

_STATE, _START_TICKS = 0, 19
"""Of the fields of /proc/PID/stat that come after the name in parentheses."""

_ENDED = frozenset(b"ZXx")


def pid_namespace() -> int:
    """The inode that names our PID namespace."""
    return os.stat("/proc/self/ns/pid").st_ino


def exists(pid: int) -> bool:
    """Whether the number is in use, asked in a way that shows processes of other users as well."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class Owners:
    """Judges identities as this process sees them. Tests bring their own boot, /proc and numbers in use."""

    def __init__(
        self,
        *,
        boot: str | None = None,
        namespace: int | None = None,
        proc: str = "/proc",
        exists: Callable[[int], bool] = exists,
    ) -> None:
        self._boot = boot_id() if boot is None else boot
        self._namespace = pid_namespace() if namespace is None else namespace
        self._proc = proc
        self._exists = exists

    def is_of_another_boot(self, owner: str) -> bool:
        """Whether that identity text is of before the host was started anew."""
        return owner.partition("/")[0] != self._boot

    def is_proved_dead(self, owner: str) -> bool:
        """Whether the process of that identity text has certainly ended."""
        parts = owner.split("/")
        if len(parts) != 5 or not all(_is_number(part) for part in parts[1:4]):
            return False
        if self.is_of_another_boot(owner):
            return True
        namespace, pid, start_ticks = (int(part) for part in parts[1:4])
        return namespace == self._namespace and pid > 0 and not self._lives(pid, start_ticks)

    def _lives(self, pid: int, start_ticks: int) -> bool:
        try:
            with open(f"{self._proc}/{pid}/stat", "rb") as file:
                stat = file.read()
        except (FileNotFoundError, ProcessLookupError):
            # Where /proc hides what belongs to others (`hidepid`, ProtectProc=), it looks like this too.
            return self._exists(pid)
        except OSError:
            # Hidden or unreadable is no proof.
            return True
        # The name may hold spaces and parentheses: only the last one ends it.
        fields = stat.rpartition(b")")[2].split()
        return fields[_STATE][0] not in _ENDED and int(fields[_START_TICKS]) == start_ticks


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20
