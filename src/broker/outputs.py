"""Files of what programs have said (`proto.statefiles`): their directory, and their end.

Workers write them, of the broker's user; here they are only removed. A file goes when the row of its job has gone,
never before that is committed. Rows do not say which files there are, so the directory is gone through: soon
after rows were deleted for theirs, and at the start and once an hour for those of every number that the
journal does not have, because a broker may end between the commit and this.

A pass is a visit to the journal thread every few milliseconds, each for a moment, so that neither a commit nor the loop
waits for a hundred thousand files or for the end of a long one; and so much rest follows that passes never take more than a
twentieth of the thread. Links are removed and not followed, and what no worker would have made is left alone.

`discard_unknown` is for the start alone: after an older journal was put in place, numbers are given a second
time, and a file of the first time must not be taken for one of the second.
"""

import os
import stat
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

from ..proto import limits
from ..proto.statefiles import OUTPUT, number_of
from .core.events import Now
from .journal import Journal, JournalFullError
from .log import Log
from .thread import JournalRunner

FULL_MS = limits.HOUR_MS
RETRY_MS = limits.MINUTE_MS
"""After a pass that could not be made."""

REST_MS = limits.SECOND_MS
"""At least so long after a pass the next begins: rows are deleted many at a time."""

REST_SHARE = 20
"""So many times as long as a pass had the journal thread."""

STEP_MS = 10
"""Between two visits of a pass."""

STEP_S = 0.002
"""What one visit takes, about."""

SHRINK_BYTES = 256 * limits.MIB
"""So much of a long file is given back at a time: a file system takes milliseconds for a gigabyte."""

GONE_MAX = 100_000
"""Numbers that wait for a pass. More of them are not remembered: the pass looks for every number then."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_directory(data: str) -> None:
    """Make the directory of the files, if it is missing. OSError, or NotADirectoryError if something is in its way."""
    path = os.path.join(data, OUTPUT)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
        # Whatever the umask is.
        os.chmod(path, 0o700)
    os.close(os.open(path, _DIRECTORY))


def discard_unknown(data: str, sequence: int) -> None:
    """Remove files of numbers that this journal has yet to give: those above `sequence`. OSError."""
    for _ in removing(os.path.join(data, OUTPUT), lambda number: number > sequence, []):
        pass


class Outputs:
    """See the module. Used by the loop; only what it hands to the runner is not."""

    def __init__(
        self, data: str, runner: JournalRunner, log: Log, failed: Callable[[BaseException], None]
    ) -> None:
        """`failed` is told of what broke the journal."""
        self._path = os.path.join(data, OUTPUT)
        self._runner = runner
        self._log = log
        self._failed = failed
        self._gone: set[int] = set()
        self._now_ms = self._full_by_ms = self._rest_until_ms = 0
        self._pass: _Pass | None = None
        self._is_out = False

    def deleted(self, numbers: Sequence[int]) -> None:
        """Rows of these jobs are gone, and that is on disk."""
        self._gone.update(numbers)

    def pass_time(self, now: Now) -> int:
        """Do what is due; in how many milliseconds something will be."""
        self._now_ms = now.mono_ms
        if self._pass is None:
            due_ms = self._rest_until_ms if self._gone else self._full_by_ms
            if now.mono_ms < due_ms:
                return due_ms - now.mono_ms
            self._pass = self._begin()
        if not self._is_out:
            self._is_out = True
            self._runner.submit(self._pass.visit, self._came_back)
        return STEP_MS

    def _begin(self) -> "_Pass":
        gone, self._gone = self._gone, set()
        is_full = self._now_ms >= self._full_by_ms or len(gone) > GONE_MAX
        if is_full:
            self._full_by_ms = self._now_ms + FULL_MS
        return _Pass(self._path, None if is_full else gone)

    def _came_back(self, is_over: bool, error: BaseException | None) -> None:
        self._is_out = False
        assert self._pass is not None
        if isinstance(error, JournalFullError | OSError):
            self._log.event("output_files_not_looked_at", burst=1, path=self._path, error=error)
            self._full_by_ms = self._now_ms + RETRY_MS
        elif error is not None:
            self._failed(error)
        elif not is_over:
            return
        for trouble in self._pass.troubles[:1]:
            left = len(self._pass.troubles)
            self._log.event("output_files_not_removed", burst=1, path=self._path, count=left, error=trouble)
        busy_ms = round(self._pass.busy_s * limits.SECOND_MS)
        self._rest_until_ms = self._now_ms + max(REST_MS, REST_SHARE * busy_ms)
        self._pass = None


class _Pass:
    """Going once through the directory. Used by the journal thread alone, until it is over."""

    def __init__(self, path: str, gone: set[int] | None) -> None:
        """`gone`: numbers whose files are to go; None: all that the journal does not have."""
        self.busy_s = 0.0
        self.troubles: list[OSError] = []
        self._path = path
        self._gone = gone
        self._has: dict[int, bool] = {}
        """What the journal has said of numbers."""
        self._steps: Generator[None] | None = None

    def visit(self, journal: Journal) -> bool:
        """Go on for a moment; whether it is over."""
        begun_s = time.monotonic()
        if self._steps is None:
            self._steps = removing(self._path, lambda number: self._is_over(journal, number), self.troubles)
        try:
            return next(self._steps, self) is self
        finally:
            self.busy_s += time.monotonic() - begun_s

    def _is_over(self, journal: Journal, number: int) -> bool:
        if self._gone is not None:
            return number in self._gone
        if number not in self._has:
            self._has[number] = _has(journal, number)
        return not self._has[number]


def _has(journal: Journal, number: int) -> bool:
    found = journal.list_jobs(queue=None, state=None, kind=None, after=number - 1, limit=1)
    return bool(found) and found[0].number == number


def removing(
    path: str, is_over: Callable[[int], bool], troubles: list[OSError], *, step_s: float = STEP_S
) -> Generator[None]:
    """Remove files whose job is over, in steps. What cannot be removed is put down; OSError of the directory."""
    until_s = time.monotonic() + step_s
    with _opened(path) as fd, os.scandir(fd) as entries:
        for entry in entries:
            number = number_of(entry.name)
            if number is not None and is_over(number):
                try:
                    yield from _shrinking(entry.name, fd)
                    os.unlink(entry.name, dir_fd=fd)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    troubles.append(error)
            if time.monotonic() >= until_s:
                yield
                until_s = time.monotonic() + step_s


@contextmanager
def _opened(path: str) -> Generator[int]:
    fd = os.open(path, _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def _shrinking(name: str, directory: int) -> Generator[None]:
    """Bring a long file down, a part in each step."""
    status = os.lstat(name, dir_fd=directory)
    if not stat.S_ISREG(status.st_mode) or status.st_size <= SHRINK_BYTES or status.st_nlink > 1:
        return
    fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        for size in range(status.st_size - SHRINK_BYTES, 0, -SHRINK_BYTES):
            os.ftruncate(fd, size)
            yield
    finally:
        os.close(fd)
