"""An attempt of the kind `command`: a program run as a job, and what becomes of how it ended.

What is asked for is `command.Command`. What the program said last is kept as the output of the attempt, stdout
and stderr as they came. A machine that has not enough of something for one program more is no fault of the job: it is given
back.
"""

import errno
import math
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from ...proto import limits
from ...proto.model import COMMAND
from ...proto.work import Ack, Nack, Release
from .. import attempt
from ..async_attempt import Strike
from ..context import running_job
from ..payload import PayloadError, fitting_arguments
from ..report import cut, reason_of, report_of
from ..signature import fit_of
from ..startpage import Token
from .attend import Attendance
from .command import Command, Rules
from .files import OpenFiles, OutputFiles, nowhere, words_of
from .filter import OutputLimitError
from .live import LiveOutput
from .program import ProgramError
from .run import environment, how, of_this_process
from .sentinels import SentinelLostError, StartError
from .streams import Stdin
from .talk import Ended

SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
"""The machine has not enough of something: no fault of the job's."""

ANSWER_S = 1.0
"""So long before the end of its time an attempt whose program has ended waits for followers no more."""

SPARE_S = 1.5
"""So long before a worker is killed, with all that runs beside, what it was to end is killed, whatever its grace."""

SHORT_S = 1.0
"""So long a worker waits before it gives such a job back, and takes another."""

# Of the class itself it would be asked with `inspect`, which takes as long as all else of a request.
_FITS = partial(fit_of(Command.__init__, COMMAND), None)


async def command(argv: Sequence[str], **options: Any) -> None:
    """The handler, as far as an app knows it: a name, which workers know how to run (`attempt_of`)."""
    raise NotImplementedError


async def attempt_of(
    token: Token,
    payload: bytes,
    strike: Strike,
    rules: Rules,
    live: LiveOutput,
    open_files: OpenFiles = nowhere,
) -> Ack | Nack | Release:
    """One attempt: run what the payload says, until nothing of it is left and who follows it has had his time.

    `open_files` makes files of what it says, if they are asked for. Raises nothing but a cancellation from elsewhere.
    """
    begun_s = time.monotonic()
    try:
        args, kwargs = fitting_arguments(payload, _FITS)
        command = Command(*args, **kwargs)
        rules.check(command)
    except (PayloadError, ProgramError) as error:
        return Nack(token, "permanent", cut(str(error), limits.REASON_BYTES_MAX))
    life = _Attempt(token, command, begun_s, live, open_files, strike)
    answer: Ack | Nack | Release | None = None
    with trio.CancelScope() as scope:
        strike.cancel = scope.cancel
        answer = await life.run()
        await live.finish(_left_s())
    if answer is not None:
        # However long its followers took: the program has ended as it did.
        return answer
    live.end_soon()
    await live.finish()
    return life.struck(strike.reason or "cancelled")


def _left_s() -> float:
    """Of the time of this attempt, without what it takes to answer."""
    job = running_job()
    return math.inf if job is None else max(0.0, job.deadline - time.monotonic() - ANSWER_S)


def _with_name(error: OSError) -> str:
    """As of a program that cannot be started: `ENOENT: No such file or directory: name`."""
    if not isinstance(error.filename, str | bytes):
        return words_of(error)
    return f"{words_of(error)}: {os.fsencode(error.filename).decode(errors='backslashreplace')}"


class _Attempt:
    """One command in its attempt."""

    def __init__(
        self,
        token: Token,
        command: Command,
        begun_s: float,
        live: LiveOutput,
        open_files: OpenFiles,
        strike: Strike,
    ) -> None:
        self._token = token
        self._command = command
        self._begun_s = begun_s
        self._live = live
        self._open_files = open_files
        self._strike = strike
        self._files: OutputFiles | None = None
        self._attendance: Attendance | None = None

    async def run(self) -> Ack | Nack | Release:
        try:
            self._attendance = self._prepared()
            return self._answer(await self._attendance.attend(self._grace_s))
        except (StartError, OSError) as error:
            if error.errno in SHORT_OF:
                await trio.sleep(SHORT_S)
                return Release(self._token, "not_started")
            return self._failed("error", str(error) if isinstance(error, StartError) else _with_name(error))
        except (ProgramError, UnicodeEncodeError) as error:
            # The latter of stdin, or of the name of its file: no attempt makes text of half a surrogate pair.
            return self._failed("permanent", str(error))
        except OutputLimitError as error:
            return self._failed("error", str(error))
        except SentinelLostError as error:
            return self._failed("crash", str(error))
        except Exception as error:  # noqa: BLE001 - a fault of stoker's must not end the worker
            return self._failed("error", reason_of(error), report_of(error))
        finally:
            if self._files is not None:
                self._files.close()

    def _grace_s(self) -> float:
        within_ms, grace_s = self._strike.within_ms, self._command.grace_s
        if within_ms is None:
            return grace_s
        return min(grace_s, max(0.0, within_ms / limits.SECOND_MS - SPARE_S))

    def _prepared(self) -> Attendance:
        command = self._command
        stdin: Stdin = command.stdin.encode() if isinstance(command.stdin, str) else command.stdin
        if command.stdin_file is not None:
            stdin = Path(command.directory, command.stdin_file)
        program = command.program(environment(command.env, command.pass_env))
        bytes_max = (command.stdout_bytes_max, command.stderr_bytes_max)
        if command.keep_output_bytes is not None:
            self._files = self._open_files(command.keep_output_bytes)
        return Attendance(of_this_process(), program, stdin, self._live, bytes_max, self._files)

    def _answer(self, ended: Ended) -> Ack | Nack:
        command = self._command
        if not ended.is_gone:
            return self._failed("error", "not all of its processes would die")
        if ended.status in command.ok:
            return Ack(
                self._token,
                attempt.encode_result(self._result(ended)),
                self._elapsed_ms,
                self._live.tail.text,
            )
        is_permanent = ended.status in command.permanent or (
            command.retry and ended.status not in command.retry
        )
        return self._failed("permanent" if is_permanent else "error", how(ended))

    def struck(self, reason: str) -> Nack:
        """It was to be ended, and is."""
        answer = attempt.struck_answer(self._token, reason, self._notes(), self._begun_s)
        if reason == "cancelled":
            answer = answer._replace(reason="its program was ended")
        return self._filled(answer)

    def _failed(self, outcome: str, reason: str, report: str = "") -> Nack:
        reason = cut(reason, limits.REASON_BYTES_MAX)
        return self._filled(
            Nack(self._token, outcome, reason, report or self._notes(), None, self._elapsed_ms)
        )

    def _filled(self, answer: Nack) -> Nack:
        answer = answer._replace(output=self._live.tail.text)
        ended = None if self._attendance is None else self._attendance.ended
        if ended is None:
            return answer
        return answer._replace(
            signal=ended.signal,
            status=ended.status,
            memory_peak_bytes=ended.memory_peak_bytes,
            cpu_ms=ended.cpu_ms,
        )

    def _result(self, ended: Ended) -> dict[str, Any]:
        assert self._attendance is not None
        stdout_bytes, stderr_bytes = self._attendance.total_bytes
        return {
            "status": ended.status,
            "stdout_bytes": stdout_bytes,
            "stderr_bytes": stderr_bytes,
            "memory_peak_bytes": ended.memory_peak_bytes,
            "cpu_ms": ended.cpu_ms,
            "left_count": ended.left_count,
            **(self._files.result if self._files is not None else {}),
        }

    def _notes(self) -> str:
        """What else there is to say of its end, a line each."""
        attendance = self._attendance
        if attendance is None or (ended := attendance.ended) is None:
            return ""
        notes = (
            [f"{ended.left_count} processes that it had left behind were killed"] if ended.left_count else []
        )
        notes += self._files.notes if self._files is not None else []
        notes += [f"its {name} was held open by another process" for name in attendance.held()]
        return "\n".join(notes)

    @property
    def _elapsed_ms(self) -> int:
        return attempt.elapsed_ms(self._begun_s)
