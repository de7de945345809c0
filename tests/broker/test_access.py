"""Roles: root and the same user may do everything, others what is given to them or to a group of theirs."""

import os
import socket

import pytest

from stoker.broker.access import (
    ADMIN_ROLES,
    EVERYTHING,
    NOTHING,
    OVERFLOW_UID,
    SUBMIT_ROLES,
    WORK_ROLES,
    Credentials,
    Grants,
    peer_credentials,
    peer_groups,
    roles,
    why_nothing,
)
from stoker.config.people import People
from stoker.proto.model import Role

OWN, STRANGER, ALICE = 1000, 1001, 1002
OPS = 5000
MANY_GROUPS = 300
"""More than fit into what Python's `getsockopt` can take."""


def users(*uids: int) -> People:
    return People(uids=frozenset(uids))


def groups(*gids: int) -> People:
    return People(gids=frozenset(gids))


@pytest.mark.parametrize("uid", [OWN, 0])
def test_same_uid_and_root_may_do_everything(uid: int) -> None:
    assert roles(Credentials(7, uid, uid), OWN) == EVERYTHING


@pytest.mark.parametrize("gid", [OWN, 0])
def test_other_uid_may_do_nothing_whatever_its_group(gid: int) -> None:
    assert roles(Credentials(7, STRANGER, gid), OWN) == NOTHING


@pytest.mark.parametrize(
    ("grants", "given"),
    [
        (Grants(submit=users(ALICE)), SUBMIT_ROLES),
        (Grants(work=users(ALICE)), WORK_ROLES),
        (Grants(admin=users(ALICE)), ADMIN_ROLES),
        (Grants(submit=users(ALICE), work=users(ALICE)), SUBMIT_ROLES | WORK_ROLES),
        (Grants(submit=users(STRANGER)), NOTHING),
    ],
)
def test_user_may_do_what_is_given_to_it(grants: Grants, given: frozenset[Role]) -> None:
    assert roles(Credentials(7, ALICE, ALICE), OWN, grants) == given


@pytest.mark.parametrize(("gid", "supplementary"), [(OPS, ()), (ALICE, (1, OPS))])
def test_member_of_a_group_may_do_what_is_given_to_it(gid: int, supplementary: tuple[int, ...]) -> None:
    peer = Credentials(7, ALICE, gid)
    assert roles(peer, OWN, Grants(admin=groups(OPS)), supplementary) == ADMIN_ROLES


def test_number_of_a_user_is_not_that_of_a_group() -> None:
    assert roles(Credentials(7, ALICE, OPS), OWN, Grants(admin=users(OPS), work=groups(ALICE))) == NOTHING


def test_who_may_administer_may_submit() -> None:
    assert Role.SUBMIT in ADMIN_ROLES


@pytest.mark.parametrize("uid", [OWN, 0])
def test_grants_take_nothing_away_from_root_and_the_same_user(uid: int) -> None:
    assert roles(Credentials(7, uid, uid), OWN, Grants(submit=users(uid, ALICE))) == EVERYTHING


def test_overflow_uid_may_do_nothing_even_if_it_is_our_own() -> None:
    assert roles(Credentials(7, OVERFLOW_UID, 0), OVERFLOW_UID) == NOTHING


def test_overflow_numbers_are_given_nothing_even_if_they_are_named() -> None:
    grants = Grants(admin=People(frozenset({OVERFLOW_UID}), frozenset({OVERFLOW_UID})))
    assert roles(Credentials(7, OVERFLOW_UID, OVERFLOW_UID), OWN, grants) == NOTHING
    assert roles(Credentials(7, ALICE, OVERFLOW_UID), OWN, grants, (OVERFLOW_UID,)) == NOTHING


def test_peer_outside_our_pid_namespace_may_do_nothing() -> None:
    assert roles(Credentials(0, OWN, OWN), OWN) == NOTHING
    assert roles(Credentials(0, ALICE, ALICE), OWN, Grants(admin=users(ALICE))) == NOTHING


@pytest.mark.parametrize(
    ("peer", "says", "namespace"),
    [
        (Credentials(0, 0, 0), "in a PID namespace that the broker cannot look into", "pid"),
        (Credentials(7, OVERFLOW_UID, 1), "in the namespace of the broker", "user"),
        (Credentials(7, ALICE, 1), f"uid {ALICE} has no role here", None),
    ],
)
def test_a_stranger_is_told_why(peer: Credentials, says: str, namespace: str | None) -> None:
    text, detail = why_nothing(peer)
    assert says in text
    assert detail.get("namespace") == namespace


def test_credentials_are_those_of_the_process_that_connected() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_credentials(ours) == (os.getpid(), os.geteuid(), os.getegid())


def test_groups_are_those_of_the_process_that_connected() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_groups(ours) == set(os.getgroups())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be in groups at will")
@pytest.mark.parametrize("count", [1, MANY_GROUPS])
def test_all_supplementary_groups_are_seen(count: int) -> None:
    before, wanted = os.getgroups(), list(range(OPS, OPS + count))
    os.setgroups(wanted)
    try:
        ours, theirs = socket.socketpair()
    finally:
        os.setgroups(before)
    with ours, theirs:
        assert peer_groups(ours) == set(wanted)
