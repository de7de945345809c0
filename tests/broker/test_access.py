"""Roles by peer uid: the same user and root may do everything, nobody else anything."""

import os
import socket

import pytest

from stoker.broker.access import EVERYTHING, NOTHING, OVERFLOW_UID, Credentials, peer_credentials, roles

OWN, STRANGER = 1000, 1001


@pytest.mark.parametrize("uid", [OWN, 0])
def test_same_uid_and_root_may_do_everything(uid: int) -> None:
    assert roles(Credentials(7, uid, uid), OWN) == EVERYTHING


def test_other_uid_may_do_nothing() -> None:
    assert roles(Credentials(7, STRANGER, OWN), OWN) == NOTHING


def test_overflow_uid_may_do_nothing_even_if_it_is_our_own() -> None:
    assert roles(Credentials(7, OVERFLOW_UID, 0), OVERFLOW_UID) == NOTHING


def test_peer_outside_our_pid_namespace_may_do_nothing() -> None:
    assert roles(Credentials(0, OWN, OWN), OWN) == NOTHING


def test_credentials_are_those_of_the_process_that_connected() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_credentials(ours) == (os.getpid(), os.geteuid(), os.getegid())
