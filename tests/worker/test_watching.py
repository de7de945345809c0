"""Watching files: what counts as a change."""

import os
from pathlib import Path

from stoker.worker.watching import Files

EARLIER, LATER = 10**18, 2 * 10**18


def written(directory: Path, text: str = "one", at_ns: int = EARLIER) -> str:
    path = directory / "tasks.py"
    path.write_text(text)
    os.utime(path, ns=(at_ns, at_ns))
    return str(path)


def test_file_that_stays_as_it_is_has_not_changed(tmp_path: Path) -> None:
    files, path = Files(), written(tmp_path)
    assert [files.changed([path], EARLIER) for _ in range(3)] == [[], [], []]


def test_file_has_changed_once_when_its_time_does(tmp_path: Path) -> None:
    files, path = Files(), written(tmp_path)
    files.changed([path], EARLIER)
    written(tmp_path, at_ns=LATER)
    assert [files.changed([path], EARLIER) for _ in range(2)] == [[path], []]


def test_file_has_changed_when_only_its_size_does(tmp_path: Path) -> None:
    files, path = Files(), written(tmp_path)
    files.changed([path], EARLIER)
    written(tmp_path, "three")
    assert files.changed([path], EARLIER) == [path]


def test_file_that_goes_and_comes_back_has_changed_twice(tmp_path: Path) -> None:
    files, path = Files(), written(tmp_path)
    files.changed([path], EARLIER)
    os.unlink(path)
    assert files.changed([path], EARLIER) == [path]
    written(tmp_path)
    assert files.changed([path], EARLIER) == [path]


def test_file_changed_since_the_import_began_counts_at_the_first_look_and_not_again(tmp_path: Path) -> None:
    files, path = Files(), written(tmp_path, at_ns=LATER)
    assert [files.changed([path], EARLIER) for _ in range(2)] == [[path], []]


def test_file_that_was_not_there_yet_counts_when_it_comes(tmp_path: Path) -> None:
    files, path = Files(), str(tmp_path / "tasks.py")
    assert files.changed([path], EARLIER) == []
    written(tmp_path)
    assert files.changed([path], EARLIER) == [path]
