"""The way through the gate (`gate.py`): asks the kernel to report system calls, then becomes a program.

    python gate_entry.py NUMBER,NUMBER,... PROGRAM ARGUMENT...

The kernel hands out a descriptor on which it asks about each such call of this process, of all its
threads and of what it becomes. Whoever started this takes it while this process is stopped. It is
never used here: a call that was asked about would wait for an answer from nobody.
"""

import ctypes
import os
import platform
import signal
import struct
import sys

LISTENER = 200
"""The descriptor's number, so that it can be taken from outside. Closed by the exec."""

SECCOMP = {"x86_64": 317, "aarch64": 277}
"""The system call by machine: libc has no function for it."""

_LOAD_NUMBER = struct.pack("=HBBI", 0x20, 0, 0, 0)
_ALLOW = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
_ASK = struct.pack("=HBBI", 0x06, 0, 0, 0x7FC00000)

_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER = 1
_NEW_LISTENER = 1 << 3
_WAIT_KILLABLE = 1 << 5
"""A signal does not interrupt a call that is asked about, which would then be counted twice."""


def _filter(numbers: list[int]) -> bytes:
    """A classic BPF program: ask about these numbers, allow all others."""
    tests = b"".join(
        # Equal: jump over the tests that are left and over `_ALLOW`, to `_ASK`.
        struct.pack("=HBBI", 0x15, len(numbers) - place, 0, number)
        for place, number in enumerate(numbers)
    )
    return _LOAD_NUMBER + tests + _ALLOW + _ASK


def install(numbers: list[int]) -> None:
    """Have these system calls asked about, on `LISTENER`. OSError if the kernel does not do that."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = _filter(numbers)
    code = ctypes.create_string_buffer(program, len(program))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    number = SECCOMP[platform.machine()]
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        descriptor = libc.syscall(number, _SECCOMP_SET_MODE_FILTER, flags, described)
        if descriptor >= 0:
            os.dup2(descriptor, LISTENER, inheritable=False)
            os.close(descriptor)
            return
    raise OSError(ctypes.get_errno(), "seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER)")


if __name__ == "__main__":
    install([int(number) for number in sys.argv[1].split(",")])
    os.kill(os.getpid(), signal.SIGSTOP)
    os.execv(sys.argv[2], sys.argv[2:])
