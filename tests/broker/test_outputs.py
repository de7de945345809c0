"""Files of what programs said: they go when their job's row has gone, in steps, and nothing else does."""

import errno
import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.journals import BOOT_ID, BOOT_MS, WALL_MS, a_job
from support.shell import LogLines
from support.stepped_runner import SteppedRunner

from stoker.broker import outputs
from stoker.broker.core.effects import Changes
from stoker.broker.core.events import Now
from stoker.broker.core.job import Job, image
from stoker.broker.journal import JournalBrokenError
from stoker.broker.memory import MemoryJournal
from stoker.broker.outputs import (
    FULL_MS,
    REST_MS,
    REST_SHARE,
    RETRY_MS,
    STEP_MS,
    Outputs,
    discard_unknown,
    make_directory,
    removing,
)
from stoker.proto import limits
from stoker.proto.messages import STDERR, STDOUT
from stoker.proto.statefiles import OUTPUT, file_name


class Bench:
    """Outputs over a memory journal that has the jobs of the given numbers, each with the files of one attempt."""

    def __init__(self, data: Path, *numbers: int) -> None:
        make_directory(str(data))
        self.directory = data / OUTPUT
        self.journal = MemoryJournal()
        self.journal.load(boot_id=BOOT_ID, boot_ms=BOOT_MS, wall_ms=WALL_MS)
        self.journal.commit(Changes(images=[image(a_job(number)) for number in numbers]))
        self.runner = SteppedRunner(self.journal)
        self.log = LogLines()
        self.failures: list[BaseException] = []
        self.outputs = Outputs(str(data), self.runner, self.log, self.failures.append)
        self.now_ms = 1000
        self.write(*numbers)

    def write(self, *numbers: int) -> None:
        for number in numbers:
            for stream in (STDOUT, STDERR):
                (self.directory / file_name(number, 1, stream)).touch()

    @property
    def numbers(self) -> set[int]:
        return {int(path.name.partition("-")[0]) for path in self.directory.iterdir()}

    def drop(self, *numbers: int) -> None:
        """Their rows go, and that is told."""
        self.journal.commit(Changes(deleted=[(number, f"job-{number}", b"", 0) for number in numbers]))
        self.outputs.deleted(numbers)

    def pass_time(self, ms: int = 0) -> int:
        """So long; what was begun then is done. In how long something is due."""
        self.now_ms += ms
        due_ms = self.outputs.pass_time(Now(self.now_ms, self.now_ms, self.now_ms))
        while self.runner.is_busy:
            self.runner.do_all()
            self.now_ms += STEP_MS
            due_ms = self.outputs.pass_time(Now(self.now_ms, self.now_ms, self.now_ms))
        return due_ms


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path, 1, 2, 3)
    bench.pass_time()
    return bench


def test_directory_is_private_whatever_the_umask(tmp_path: Path) -> None:
    umask = os.umask(0o777)
    try:
        make_directory(str(tmp_path))
    finally:
        os.umask(umask)
    assert (tmp_path / OUTPUT).stat().st_mode & 0o7777 == 0o700
    make_directory(str(tmp_path))


@pytest.mark.parametrize("target", ["elsewhere", None])
def test_what_is_in_the_way_of_the_directory_is_said_and_left(tmp_path: Path, target: str | None) -> None:
    (tmp_path / "elsewhere").mkdir()
    if target is None:
        (tmp_path / OUTPUT).touch()
    else:
        (tmp_path / OUTPUT).symlink_to(target)
    with pytest.raises(NotADirectoryError):
        make_directory(str(tmp_path))


def test_at_the_start_goes_what_the_journal_does_not_have(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 2)
    bench.write(3, 10**9)
    bench.pass_time()
    assert bench.numbers == {1, 2}


def test_files_go_when_their_row_has_gone(bench: Bench) -> None:
    bench.drop(2)
    assert bench.numbers == {1, 2, 3}
    bench.pass_time(REST_MS)
    assert bench.numbers == {1, 3}


def test_every_attempt_goes(bench: Bench) -> None:
    for attempt in (2, 30):
        (bench.directory / file_name(2, attempt, STDOUT)).touch()
    bench.drop(2)
    bench.pass_time(REST_MS)
    assert bench.numbers == {1, 3}


def test_rows_that_go_one_after_the_other_share_a_pass(bench: Bench) -> None:
    before = bench.runner.submitted
    for number in (1, 2):
        bench.drop(number)
        bench.pass_time(1)
    assert bench.pass_time(REST_MS) > REST_MS
    assert bench.numbers == {3}
    assert bench.runner.submitted == before + 1


def test_rest_is_a_share_of_what_a_pass_has_taken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each look at it takes a second.
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    bench.drop(2)
    bench.pass_time(REST_MS)
    monkeypatch.undo()
    assert bench.numbers == {1, 3}
    bench.drop(3)
    bench.pass_time(REST_MS)
    assert bench.numbers == {1, 3}, "seconds of work are followed by more rest than that"
    bench.pass_time(REST_SHARE * limits.MINUTE_MS)
    assert bench.numbers == {1}


def test_nothing_is_done_where_nothing_is_due(bench: Bench) -> None:
    before = bench.runner.submitted
    due_ms = bench.pass_time(1)
    assert FULL_MS - 10 * STEP_MS < due_ms < FULL_MS
    assert bench.runner.submitted == before


def test_once_an_hour_all_is_looked_at(bench: Bench) -> None:
    bench.write(4)
    bench.pass_time(REST_MS)
    assert 4 in bench.numbers
    bench.pass_time(FULL_MS)
    assert bench.numbers == {1, 2, 3}


def test_too_many_rows_to_remember_have_all_looked_at(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "GONE_MAX", 1)
    bench.write(4)
    bench.drop(1, 2)
    bench.pass_time(REST_MS)
    assert bench.numbers == {3}


def test_pass_over_many_files_is_made_in_steps(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(*range(1, 101))
    steps = removing(str(bench.directory), lambda number: number > 50, [], step_s=0)
    assert len(list(steps)) == 200
    assert bench.numbers == set(range(1, 51))


def test_long_file_is_brought_down_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "SHRINK_BYTES", 1000)
    bench = Bench(tmp_path)
    path = bench.directory / file_name(1, 1, STDOUT)
    path.write_bytes(bytes(3500))
    sizes = [path.stat().st_size for _ in removing(str(bench.directory), lambda _: True, []) if path.exists()]
    assert sizes == [2500, 1500, 500]
    assert not path.exists()


def test_file_with_a_second_name_is_only_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "SHRINK_BYTES", 1000)
    bench = Bench(tmp_path)
    (tmp_path / "precious").write_bytes(bytes(3500))
    (bench.directory / file_name(1, 1, STDOUT)).hardlink_to(tmp_path / "precious")
    bench.pass_time()
    assert bench.numbers == set()
    assert (tmp_path / "precious").stat().st_size == 3500


def test_link_is_removed_and_not_followed(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(bytes(3500))
    (bench.directory / file_name(4, 1, STDOUT)).symlink_to(tmp_path / "precious")
    bench.pass_time(FULL_MS)
    assert bench.numbers == {1, 2, 3}
    assert (tmp_path / "precious").stat().st_size == 3500


def test_what_no_worker_has_made_is_left_alone(bench: Bench) -> None:
    names = {"notes", "4-1.log", "-1.stdout"}
    for name in names:
        (bench.directory / name).touch()
    bench.pass_time(FULL_MS)
    assert {path.name for path in bench.directory.iterdir()} > names


def test_file_that_cannot_be_removed_keeps_no_other(bench: Bench) -> None:
    bench.write(5)
    (bench.directory / file_name(4, 1, STDOUT)).mkdir()
    bench.pass_time(FULL_MS)
    assert bench.numbers == {1, 2, 3, 4}
    (line,) = bench.log.lines
    assert "output_files_not_removed" in line and "count=1" in line


def test_directory_that_cannot_be_read_is_tried_again(bench: Bench) -> None:
    bench.write(4)
    bench.directory.rename(bench.directory.with_name("away"))
    assert bench.pass_time(FULL_MS) <= RETRY_MS
    assert "output_files_not_looked_at" in bench.log.lines[0]
    bench.directory.with_name("away").rename(bench.directory)
    bench.pass_time(RETRY_MS)
    assert bench.numbers == {1, 2, 3}
    assert bench.failures == []


class BrokenJournal(MemoryJournal):
    def list_jobs(
        self, *, queue: str | None, state: str | None, kind: str | None, after: int, limit: int
    ) -> Sequence[Job]:
        raise JournalBrokenError(os.strerror(errno.EIO))


def test_journal_that_breaks_is_told(bench: Bench) -> None:
    bench.runner.journal = BrokenJournal()
    bench.pass_time(FULL_MS)
    (failure,) = bench.failures
    assert isinstance(failure, JournalBrokenError)
    assert bench.numbers == {1, 2, 3}


def test_numbers_that_are_yet_to_be_given_have_no_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(1, 2, 3)
    discard_unknown(str(tmp_path), 2)
    assert bench.numbers == {1, 2}
