"""A program to be run: what, where, with which surroundings and limits.

Everything a child gets is named here; nothing is inherited from whoever starts it but what the kernel hands
down. A request that can never work is refused by `check`, before anything is made for it.
"""

import os
from collections.abc import Mapping, Sequence

import attrs

from ...proto import limits

ARGUMENT_BYTES_MAX = 6 * limits.MIB
"""Of arguments and environment together, a zero byte and a pointer for each: no kernel takes more."""

UMASK_DEFAULT = 0o022
UMASK_MAX = 0o777
OOM_SCORE_ADJ_MAX = 1000

LIMITS = {
    "memory_bytes": "RLIMIT_AS",
    "cpu_s": "RLIMIT_CPU",
    "files": "RLIMIT_NOFILE",
    "file_bytes": "RLIMIT_FSIZE",
    "processes": "RLIMIT_NPROC",
}
"""Names of limits, and what the kernel calls them. `processes` counts all of the user, not of the program alone."""


class ProgramError(ValueError):
    """This can never be run; the text says why."""


def encoded(text: str | bytes | os.PathLike[str], what: str) -> bytes:
    """As the kernel takes it. ProgramError if it cannot be: half of a surrogate pair stands for nothing."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ProgramError(f"{what} cannot be encoded: {error.reason}") from error


def encoded_arguments(argv: Sequence[str | bytes | os.PathLike[str]]) -> list[bytes]:
    """The program and its arguments. ProgramError names the one that cannot be encoded."""
    return [encoded(each, f"argument {at}") for at, each in enumerate(argv)]


@attrs.frozen
class Program:
    """See the module."""

    argv: Sequence[bytes]
    """The program and its arguments. Looked up in the PATH of `env` if there is no slash in its name."""
    directory: bytes
    """Its working directory, an absolute path."""
    env: Mapping[bytes, bytes]
    """All of its environment."""
    umask: int = UMASK_DEFAULT
    limits: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """By name, see `LIMITS`."""
    oom_score_adj: int | None = None
    """None: that of whoever starts it."""

    def check(self) -> None:
        """ProgramError if no kernel would run it. For whoever makes it; a sentinel is sent none but those."""
        self._check_arguments()
        if not os.path.isabs(self.directory):
            raise ProgramError(
                f"the working directory must be an absolute path, not {_shown(self.directory)}"
            )
        if b"\0" in self.directory:
            raise ProgramError("the working directory has a zero byte in it")
        if not _is_within(self.umask, 0, UMASK_MAX):
            raise ProgramError(f"the umask must be from 0 to {UMASK_MAX} (0o777), not {self.umask!r}")
        if self.oom_score_adj is not None and not _is_within(self.oom_score_adj, 0, OOM_SCORE_ADJ_MAX):
            raise ProgramError(
                f"oom_score_adj must be from 0 to {OOM_SCORE_ADJ_MAX}, not {self.oom_score_adj!r}"
            )
        for name, value in self.limits.items():
            if name not in LIMITS:
                raise ProgramError(f"no limit is called {name!r}; there are {', '.join(LIMITS)}")
            if not _is_within(value, 1, limits.INTEGER_MAX):
                raise ProgramError(f"the limit {name} must be from 1 to {limits.INTEGER_MAX}, not {value!r}")

    def _check_arguments(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ProgramError("no program is named")
        # Put together, because one by one takes as long as all else that is done for a program here.
        arguments, names, values = map(b"".join, (self.argv, self.env, self.env.values()))
        if b"\0" in arguments:
            at = next(at for at, argument in enumerate(self.argv) if b"\0" in argument)
            raise ProgramError(f"argument {at} has a zero byte in it: {_shown(self.argv[at])}")
        if b"" in self.env or b"=" in names or b"\0" in names or b"\0" in values:
            name = next(filter(self._is_no_variable, self.env))
            raise ProgramError(f"{_shown(name)} cannot be a variable of the environment")
        size = len(arguments) + len(names) + len(values)
        size += _OVERHEAD_BYTES * (len(self.argv) + len(self.env))
        if size > ARGUMENT_BYTES_MAX:
            raise ProgramError(
                f"arguments and environment have {size} bytes, and no more than {ARGUMENT_BYTES_MAX} can be"
            )

    def _is_no_variable(self, name: bytes) -> bool:
        return not name or b"=" in name or b"\0" in name + self.env[name]


_OVERHEAD_BYTES = 9
_SHOWN_BYTES = 40


def _is_within(value: object, least: int, most: int) -> bool:
    # What a job says may be of any kind.
    return type(value) is int and least <= value <= most


def _shown(text: bytes) -> str:
    return repr(text[:_SHOWN_BYTES].decode(errors="backslashreplace")) + (
        "..." if len(text) > _SHOWN_BYTES else ""
    )
