"""Files that are removed, moved or replaced while somebody writes to them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.broker.whereabouts import JournalLostError, Whereabouts, missing_of

NAMES = ("file", "log")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    for name in NAMES:
        (place / name).write_text(name)
    return place


def put_copy(path: Path) -> None:
    """What editors and careful scripts do: the same content, another file."""
    shutil.copy2(path, f"{path}.copy")
    os.rename(f"{path}.copy", path)


def put_link(path: Path) -> None:
    path.rename(f"{path}.moved")
    path.symlink_to(f"{path}.moved")


LOSSES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "moved": lambda path: path.rename(f"{path}.moved"),
    "replaced": put_copy,
    "made a link to itself": put_link,
}


def test_what_is_where_it_was_is_not_lost(place: Path) -> None:
    whereabouts = Whereabouts(str(place), *NAMES)
    (place / "file").write_text("and more")
    (place / "another").touch()
    whereabouts.check()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("loss", LOSSES)
def test_lost_file_is_named_with_what_has_to_come_back(place: Path, name: str, loss: str) -> None:
    # Kept open, as by a broker: else its inode is free for the next file.
    with open(place / name):
        whereabouts = Whereabouts(str(place), *NAMES)
        inodes = [(each, (place / each).stat().st_ino) for each in NAMES]
        LOSSES[loss](place / name)
        with pytest.raises(JournalLostError, match=f"{place / name}: was re") as caught:
            whereabouts.check()
    assert caught.value.files == inodes
    assert caught.value.exit_word == "STORAGE"


def test_file_that_came_back_is_not_lost(place: Path) -> None:
    whereabouts = Whereabouts(str(place), *NAMES)
    (place / "file").rename(place / "away")
    (place / "away").rename(place / "file")
    whereabouts.check()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_lost_directory_is_named_and_not_its_files(place: Path, is_replaced: bool) -> None:
    whereabouts = Whereabouts(str(place), *NAMES)
    place.rename(place.with_name("moved"))
    if is_replaced:
        place.mkdir()
    with pytest.raises(JournalLostError, match=f"{place}: .*bring") as caught:
        whereabouts.check()
    assert caught.value.files == ()


def test_path_that_cannot_be_asked_for_proves_nothing(place: Path) -> None:
    whereabouts = Whereabouts(str(place), *NAMES)
    place.rename(place.with_name("moved"))
    place.symlink_to(place.name)
    whereabouts.check()


def test_missing_is_the_first_that_is_not_back(place: Path) -> None:
    inodes = [(name, (place / name).stat().st_ino) for name in NAMES]
    assert missing_of(str(place), inodes) is None
    (place / "log").rename(place / "away")
    assert missing_of(str(place), inodes) == str(place / "log")
    put_copy(place / "file")
    assert missing_of(str(place), inodes) == str(place / "file")
