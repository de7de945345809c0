"""What a job of the kind `command` asks for, and what a pool allows.

    [["convert", "in.png", "out.png"], ...]    args: the program and its arguments, a list, never a shell's text
    {"directory": ..., "env": {...}, ...}      kwargs: the other fields of `Command`

The program's end decides: a status in `ok` is success; one in `permanent` ends the job; all else is an error and is
tried again, or, if `retry` names statuses, is permanent unless it is among them. A pool that may run only certain
programs takes no environment from a job, because `LD_PRELOAD` would be one more way to run others.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from ...proto import limits
from .program import UMASK_DEFAULT, Program, ProgramError, encoded, encoded_arguments

GRACE_S = 3.0
"""Between TERM and KILL. Below the time after which a worker that does not let go of a cancelled job is killed
itself."""

GRACE_S_MAX = 3600


class Rules:
    """What a pool lets jobs run: every program, or those in a list of absolute paths."""

    def __init__(self, programs: Collection[str] = ()) -> None:
        self._programs = frozenset(programs)

    def check(self, command: "Command") -> None:
        """ProgramError if this is not allowed here."""
        if not self._programs:
            return
        if command.argv[0] not in self._programs:
            allowed = ", ".join(sorted(self._programs))
            raise ProgramError(f"this pool runs only {allowed}, each named by just that path")
        if command.env or command.pass_env:
            raise ProgramError("a pool that runs only certain programs takes no environment from jobs")


@attrs.frozen(kw_only=True)
class Command:
    """The arguments of a job of this kind. ProgramError if they cannot be."""

    argv: Sequence[str] = attrs.field(kw_only=False)
    directory: str = "/"
    env: Mapping[str, str] = attrs.field(factory=dict[str, str])
    pass_env: Sequence[str] = ()
    stdin: bytes | str | None = None
    stdin_file: str | None = None
    umask: int = UMASK_DEFAULT
    rlimits: Mapping[str, int] = attrs.field(factory=dict[str, int])
    oom_score_adj: int | None = None
    ok: Sequence[int] = (0,)
    retry: Sequence[int] = ()
    permanent: Sequence[int] = ()
    stdout_bytes_max: int | None = None
    """More than that is an error; None: all but its end is dropped."""
    stderr_bytes_max: int | None = None
    keep_output_bytes: int | None = None
    """So much of each stream of each attempt goes to a file; None: there is none."""
    grace_s: float = GRACE_S

    def program(self, env: Mapping[bytes, bytes]) -> Program:
        """What is to be run, in this environment. ProgramError if no kernel would."""
        program = Program(
            encoded_arguments(self.argv),
            encoded(self.directory, "the working directory"),
            env,
            self.umask,
            self.rlimits,
            self.oom_score_adj,
        )
        program.check()
        return program

    def __attrs_post_init__(self) -> None:
        _require(_texts(self.argv) and self.argv, "argv", "a list of texts, the program first")
        _require(type(self.directory) is str, "directory", "a path")
        _require(_is(self.env, dict) and _texts([*self.env, *self.env.values()]), "env", "a map of texts")
        _require(_texts(self.pass_env), "pass_env", "a list of names")
        _require(self.stdin is None or _is(self.stdin, bytes, str), "stdin", "bytes or text")
        _require(self.stdin_file is None or type(self.stdin_file) is str, "stdin_file", "a path")
        _require(self.stdin is None or self.stdin_file is None, "stdin", "left out if there is a stdin_file")
        for name in ("ok", "retry", "permanent"):
            _require(_numbers(getattr(self, name)), name, "a list of exit statuses")
        for name in ("retry", "permanent"):
            both = sorted(set(self.ok).intersection(getattr(self, name)))
            _require(not both, name, f"without {both}, which {'is' if len(both) == 1 else 'are'} ok")
        _require(
            _is(self.rlimits, dict) and _numbers([*self.rlimits.values()]), "rlimits", "a map of numbers"
        )
        _require(type(self.umask) is int, "umask", "a number")
        _require(self.oom_score_adj is None or type(self.oom_score_adj) is int, "oom_score_adj", "a number")
        for name in ("stdout_bytes_max", "stderr_bytes_max"):
            value = getattr(self, name)
            _require(value is None or (type(value) is int and value > 0), name, "a number of bytes above 0")
        least, most = limits.KEEP_OUTPUT_BYTES_MIN, limits.KEEP_OUTPUT_BYTES_MAX
        kept = self.keep_output_bytes
        is_size = kept is None or (type(kept) is int and least <= kept <= most)
        _require(is_size, "keep_output_bytes", f"a number of bytes from {least} to {most}")
        is_time = _is(self.grace_s, int, float) and 0 <= self.grace_s <= GRACE_S_MAX
        _require(is_time, "grace_s", f"seconds from 0 to {GRACE_S_MAX}")


def _require(is_right: object, name: str, what: str) -> None:
    if not is_right:
        raise ProgramError(f"{name} must be {what}")


def _texts(values: Any) -> bool:
    return _is(values, list, tuple) and all(type(each) is str for each in values)


def _numbers(values: Any) -> bool:
    return _is(values, list, tuple) and all(type(each) is int for each in values)


def _is(value: object, *kinds: type) -> bool:
    """A function, because what comes from a payload need not be what is declared."""
    return type(value) in kinds
