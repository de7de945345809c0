"""What a user may read and write, by the kernel's word or by the mode, and what to do where he may not."""

import os
import subprocess
from pathlib import Path

import pytest
from support.other_user import GID, OTHER_UID, ROOT_ONLY, UID

from stoker.broker.permission import hindrance, may, unopened

BOTH = os.R_OK | os.W_OK


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.touch(0o600)
    return path


def test_own_file_that_may_be_written_is_no_hindrance(path: Path) -> None:
    assert hindrance(str(path), os.geteuid()) is None
    assert hindrance(str(path.parent), os.geteuid()) is None


def test_what_is_not_there_is_an_error_of_the_system(path: Path) -> None:
    path.unlink()
    with pytest.raises(FileNotFoundError):
        hindrance(str(path), os.geteuid())
    assert unopened(str(path), OSError(28, "No space left")) == "cannot be opened: No space left"


@ROOT_ONLY
@pytest.mark.parametrize(
    ("mode", "uid", "allowed"), [(0o600, UID, True), (0o466, UID, False), (0o646, OTHER_UID, True)]
)
def test_of_another_user_the_mode_tells(path: Path, mode: int, uid: int, allowed: bool) -> None:
    os.chown(path, UID, GID)
    path.chmod(mode)
    assert may(str(path), uid, BOTH) is allowed
    assert may(str(path), 0, BOTH)


@ROOT_ONLY
def test_another_user_is_told_whose_it_is(path: Path) -> None:
    found = hindrance(str(path), UID)
    assert found is not None and (found.what.split(",")[0], found.advice) == ("belongs to uid 0", "chown it")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may everything")
def test_own_file_that_may_not_be_written_is_to_be_opened_to_its_owner(path: Path) -> None:
    path.chmod(0o400)
    found = hindrance(str(path), os.geteuid())
    assert found is not None and str(found) == "may not be read and written (mode 0400); chmod u=rw it"


@ROOT_ONLY
def test_mode_is_not_blamed_for_what_an_attribute_forbids(path: Path) -> None:
    if subprocess.run(["chattr", "+i", str(path)], check=False, capture_output=True).returncode:
        pytest.skip("this file system or this root has no immutable files")
    try:
        found = hindrance(str(path), 0)
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)
    assert found is not None and "chmod" not in found.advice and "lsattr" in found.advice
