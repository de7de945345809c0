"""Users and groups by name and number, and the strangers that no rule may name."""

import grp
import os
import pwd

import pytest

from stoker.config.people import OVERFLOW_ID, People, gid_of, people_of, uid_of


def test_names_become_numbers() -> None:
    user, group = pwd.getpwuid(0), grp.getgrgid(0)
    assert uid_of(user.pw_name) == 0
    assert gid_of(group.gr_name) == 0


@pytest.mark.parametrize("of", [uid_of, gid_of])
def test_number_needs_no_entry(of: object) -> None:
    assert callable(of)
    assert of("54321") == 54321


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no-such-one", "'no-such-one' is known on this host"),
        (str(OVERFLOW_ID), "stands for any stranger; use another one"),
        ("4294967295", "over the highest number"),
        ("9" * 5000, "over the highest number"),
    ],
)
@pytest.mark.parametrize("of", [uid_of, gid_of])
def test_who_cannot_be_is_refused(of: object, text: str, says: str) -> None:
    assert callable(of)
    with pytest.raises(ValueError, match=says):
        of(text)


def test_users_and_groups_are_told_apart_and_all_that_is_wrong_is_said() -> None:
    people, wrong = people_of(["1000", "@1001", "no-such-one", "@no-such-group"])
    assert people == People(frozenset({1000}), frozenset({1001}))
    assert [line.split(" is ")[0] for line in wrong] == ["no user 'no-such-one'", "no group 'no-such-group'"]


def test_own_user_is_known() -> None:
    assert uid_of(str(os.getuid())) == os.getuid()
