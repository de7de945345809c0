"""A worker's temporary directory: its own, empty for each job, and gone with the worker."""

import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pools import RunningPool
from support.waiting import wait_until

from stoker.worker import scratch
from stoker.worker.scratch import Scratch

APP = """
    import subprocess, tempfile


    @app.job
    def litter():
        found = os.listdir(os.environ["TMPDIR"])
        tempfile.mkdtemp()
        subprocess.run(["sh", "-c", "mktemp"], check=True)
        return [tempfile.gettempdir(), found, len(os.listdir(os.environ["TMPDIR"]))]


    @app.job
    def remove_it():
        os.rmdir(os.environ["TMPDIR"])


    @app.job
    def point_elsewhere():
        tempfile.tempdir = os.environ["TMPDIR"] = "/nowhere"
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scratch]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    made = Scratch(scratch.path_of("0123456789abcdef0123", scratch.base()))
    assert made.make()
    yield made


def test_it_lies_in_the_directory_for_temporary_files_and_is_private(
    directory: Scratch, tmp_path: Path
) -> None:
    assert directory.path == str(tmp_path / "stoker-0123456789abcdef")
    assert stat.S_IMODE(os.stat(directory.path).st_mode) == 0o700
    assert (os.environ["TMPDIR"], tempfile.gettempdir()) == (directory.path, directory.path)


def test_what_was_put_there_is_gone_after_the_next_look(directory: Scratch) -> None:
    for _ in range(3):
        path = Path(directory.path, "deep", "er")
        path.mkdir(parents=True)
        (path / "file").write_text("x")
        assert directory.clean()
        assert os.listdir(directory.path) == []


def test_unused_one_is_left_as_it_is(directory: Scratch) -> None:
    inode = os.stat(directory.path).st_ino
    assert directory.clean()
    assert os.stat(directory.path).st_ino == inode


def test_one_that_is_gone_is_made_again(directory: Scratch) -> None:
    os.rmdir(directory.path)
    assert directory.clean()
    assert os.path.isdir(directory.path)


def test_link_in_its_place_is_replaced_and_not_followed(directory: Scratch, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    os.rmdir(directory.path)
    os.symlink(tmp_path / "mine", directory.path)
    assert directory.clean()
    assert not os.path.islink(directory.path)
    assert (tmp_path / "mine" / "file").exists()


def test_without_a_place_for_it_there_is_none(tmp_path: Path) -> None:
    assert not Scratch(str(tmp_path / "not" / "there")).make()
    assert "there" not in os.environ.get("TMPDIR", "")


@pytest.mark.slow
def test_each_job_finds_it_empty_and_nothing_stays_behind(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(short_directory))
    with RunningPool(short_directory, app=APP) as pool:
        for between in ("litter", "remove_it", "point_elsewhere"):
            path, found, count = pool.broker.wait_result(pool.broker.put("litter"))
            assert (Path(path).parent, found, count) == (short_directory, [], 2)
            pool.broker.wait_result(pool.broker.put(between))
        assert pool.terminate() == 0
        assert list(short_directory.glob("stoker-*")) == []


@pytest.mark.slow
def test_that_of_a_killed_worker_is_removed(short_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(short_directory))
    with RunningPool(short_directory, app=APP) as pool:
        path, *_ = pool.broker.wait_result(pool.broker.put("litter"))
        (worker,) = pool.broker.workers()
        os.kill(worker.pid, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(path), "the directory is removed")


@pytest.mark.slow
def test_those_of_a_killed_supervisors_workers_are_removed(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(short_directory))
    with RunningPool(short_directory, app=APP) as pool:
        path, *_ = pool.broker.wait_result(pool.broker.put("litter"))
        os.kill(pool.pid, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(path), "the directory is removed")
