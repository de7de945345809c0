"""The settings file: which is refused, and on which line a key stands."""

import os
from pathlib import Path

import pytest

from stoker.config.file import File, lines_of, read
from stoker.config.mistakes import SettingError
from stoker.config.place import NO_FILE, Place, place
from stoker.proto import limits


def test_current_directory_is_not_looked_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stoker.toml").write_text("[broker]\n")
    monkeypatch.chdir(tmp_path)
    assert read(place(None, {"HOME": "/nowhere"}, 1000)) is None


def test_named_file_must_be_there_and_another_need_not(tmp_path: Path) -> None:
    path = str(tmp_path / "stoker.toml")
    assert read(Place(path, False)) is None
    with pytest.raises(SettingError, match=f"{path}: cannot be read: No such file"):
        read(Place(path, True))


def test_null_device_is_no_file() -> None:
    assert read(Place(NO_FILE, True)) is None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "stoker.toml"
    path.write_text("[pool]\nworkers = 3\n")
    path.chmod(0o644)
    return path


def test_file_is_read_with_its_lines(path: Path) -> None:
    file = read(Place(str(path), True))
    assert file is not None
    assert file.values == {"pool": {"workers": 3}}
    assert file.where("pool", "workers") == f"{path}:2"


def refusal(path: Path) -> str:
    with pytest.raises(SettingError) as caught:
        read(Place(str(path), False))
    assert len(caught.value.lines) == 1
    assert caught.value.lines[0].startswith(f"{path}: ")
    return caught.value.lines[0]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[pool\n", "not TOML.*line 1"),
        (b"[pool]\n[pool]\n", "not TOML.*line 2"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"a=" + b"[" * 50_000, "nested too deep"),
        (b"#" * (limits.CONFIG_BYTES_MAX + 1), "more than"),
    ],
)
def test_what_cannot_be_read_is_refused_on_one_line(path: Path, content: bytes, says: str) -> None:
    path.write_bytes(content)
    with pytest.raises(SettingError, match=says):
        read(Place(str(path), False))
    refusal(path)


@pytest.mark.parametrize("mode", [0o646, 0o666])
def test_file_that_anybody_may_write_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert f"writable by others (mode {mode:04o}); chmod go-w it" in refusal(path)


def test_own_group_may_write(path: Path) -> None:
    path.chmod(0o664)
    assert read(Place(str(path), True)) is not None


def test_directory_is_refused(tmp_path: Path) -> None:
    assert "not a regular file" in refusal(tmp_path) or "Is a directory" in refusal(tmp_path)


def test_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert "not a regular file" in refusal(path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_file_of_a_stranger_is_refused(path: Path) -> None:
    os.chown(path, 12345, -1)
    assert "belongs to uid 12345" in refusal(path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_file_that_another_group_may_write_is_refused(path: Path) -> None:
    os.chown(path, -1, 12345)
    path.chmod(0o664)
    assert "writable by others" in refusal(path)


TEXT = """\
# [not.this]
top = 1
[broker]
  done_kept = "1h"
"quoted" = 1
[queues.mail]
jobs_max = 3
[queues."a.b"]
lease = "5s"
[queues]
inline = { jobs_max = 1 }
dotted.jobs_max = 1
text = '''
twice = 1
'''
twice = 2
"""


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("top",), 2),
        (("broker",), 3),
        (("broker", "done_kept"), 4),
        (("broker", "quoted"), 5),
        (("queues", "mail", "jobs_max"), 7),
        (("queues", "a.b", "lease"), 9),
        (("queues", "dotted", "jobs_max"), 12),
    ],
)
def test_line_of_a_key_is_found(keys: tuple[str, ...], line: int) -> None:
    assert lines_of(TEXT)[keys] == line


def test_line_that_could_be_two_is_not_believed() -> None:
    assert ("queues", "twice") not in lines_of(TEXT)


def test_key_without_a_line_is_placed_by_what_it_is_in() -> None:
    file = File("/f", {}, lines_of(TEXT))
    assert file.where("queues", "inline", "jobs_max") == "/f:11"
    assert file.where("nowhere", "x") == "/f"
