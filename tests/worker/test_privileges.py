"""Dropping privileges: for good, with everything that goes with a user, or not at all."""

import json
import os
import pwd
import subprocess
from typing import Any

import pytest
from support.other_user import GID, ROOT_ONLY, UID, python_as, python_for_all

from stoker.worker.privileges import PrivilegeError, drop, identity_of

DROPPED = """
import json, os, sys
from stoker.worker.privileges import PrivilegeError, drop
os.setgroups([0, 7])
try:
    drop(sys.argv[1], sys.argv[2] or None)
except PrivilegeError as error:
    print(json.dumps(str(error)))
    sys.exit()
def may(call, *numbers):
    try:
        call(*numbers)
    except PermissionError:
        return False
    return True
print(json.dumps({
    "uids": os.getresuid(), "gids": os.getresgid(), "groups": sorted(os.getgroups()),
    "environment": {name: os.environ.get(name) for name in ("HOME", "USER", "LOGNAME")},
    "back": may(os.setresuid, 0, 0, 0) or may(os.setresgid, 0, 0, 0) or may(os.setgroups, [0]),
    "names itself": os.access("/proc/self/comm", os.W_OK),
}))
"""


def dropped(user: str, group: str = "") -> Any:
    """What a process of root's own sees after `drop`."""
    command = [*python_for_all(), "-c", DROPPED, user, group]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/")
    return json.loads(ran.stdout)


@ROOT_ONLY
@pytest.mark.slow
def test_everything_of_root_is_gone_for_good() -> None:
    seen = dropped(str(UID), str(GID))
    assert (seen["uids"], seen["gids"], seen["groups"]) == ([UID] * 3, [GID] * 3, [GID])
    assert not seen["back"]


@ROOT_ONLY
@pytest.mark.slow
def test_user_gets_its_groups_and_its_environment() -> None:
    daemon = pwd.getpwnam("daemon")
    seen = dropped("daemon")
    assert seen["gids"] == [daemon.pw_gid] * 3
    assert seen["groups"] == sorted(os.getgrouplist("daemon", daemon.pw_gid))
    assert seen["environment"] == {"HOME": daemon.pw_dir, "USER": "daemon", "LOGNAME": "daemon"}


@ROOT_ONLY
@pytest.mark.slow
def test_user_without_an_entry_has_no_name() -> None:
    assert dropped(str(UID), str(GID))["environment"] == {"HOME": "/", "USER": None, "LOGNAME": None}


@ROOT_ONLY
@pytest.mark.slow
def test_process_still_owns_its_files_in_proc() -> None:
    assert dropped(str(UID), str(GID))["names itself"]


KEEPS_CAPABILITIES = """
import ctypes, sys
from stoker.worker.privileges import PrivilegeError, drop
NO_SETUID_FIXUP = 1 << 2
assert ctypes.CDLL(None).prctl(28, NO_SETUID_FIXUP, 0, 0, 0) == 0
try:
    drop(sys.argv[1], sys.argv[2])
except PrivilegeError as error:
    print(error)
"""


@ROOT_ONLY
@pytest.mark.slow
def test_way_back_that_the_starter_left_open_is_refused() -> None:
    command = [*python_for_all(), "-c", KEEPS_CAPABILITIES, str(UID), str(GID)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/")
    assert "could become root again" in ran.stdout


@ROOT_ONLY
@pytest.mark.slow
def test_only_root_can_become_another() -> None:
    script = DROPPED.replace("os.setgroups([0, 7])", "")
    said = python_as(UID, GID, script, "daemon", "")
    assert "only root can become user daemon" in said


@pytest.mark.parametrize(
    ("user", "group", "says"),
    [
        ("no-such-one", None, "no user 'no-such-one' is known"),
        ("daemon", "no-such-group", "no group 'no-such-group' is known"),
        ("0", None, "root keeps every privilege"),
        ("65534", None, "stands for any stranger"),
        (str(UID), None, "a group must be named too"),
    ],
)
def test_who_cannot_be_become_is_refused_before_anything_changes(
    user: str, group: str | None, says: str
) -> None:
    before = os.getresuid(), os.getresgid(), os.getgroups()
    with pytest.raises(PrivilegeError, match=says):
        drop(user, group)
    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before


def test_named_group_takes_the_place_of_the_users_own() -> None:
    assert identity_of("daemon", str(GID)).gid == GID
