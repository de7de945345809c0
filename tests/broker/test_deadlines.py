"""Deadlines of connections, on peers that are only as real as they need to be."""

import socket
from collections.abc import Iterator

import pytest
from support.wire_peer import frame

from stoker.broker.access import EVERYTHING, Credentials
from stoker.broker.deadlines import Deadlines
from stoker.broker.peer import Peer
from stoker.broker.poller import Poller
from stoker.proto import limits

HANDSHAKE, FRAME = limits.HANDSHAKE_MS, limits.FRAME_MS_MAX


@pytest.fixture
def peer() -> Iterator[Peer]:
    ours, theirs = socket.socketpair()
    with theirs:
        peer = Peer(1, ours, None, Credentials(7, 1000, 1000), EVERYTHING, Poller(), lambda _: None)
        yield peer
        peer.close()


def codes(deadlines: Deadlines, now_ms: int) -> list[str]:
    return [code for _, code, _ in deadlines.overdue(now_ms)]


def hear(deadlines: Deadlines, peer: Peer, data: bytes, now_ms: int) -> None:
    peer.connection.receive_data(data)
    is_new = False
    while peer.connection.next_event() is not None:
        is_new = True
    deadlines.heard(peer, now_ms, is_new=is_new)


def test_silence_is_overdue_after_its_time_and_once(peer: Peer) -> None:
    deadlines = Deadlines()
    deadlines.connected(peer, 1000)
    assert codes(deadlines, 1000 + HANDSHAKE - 1) == []
    assert codes(deadlines, 1000 + HANDSHAKE) == ["handshake_timeout"]
    assert codes(deadlines, 1000 + HANDSHAKE) == []


def test_first_byte_ends_the_silence(peer: Peer) -> None:
    deadlines = Deadlines()
    deadlines.connected(peer, 0)
    hear(deadlines, peer, frame(16, 1), 1)
    assert codes(deadlines, 10 * HANDSHAKE) == []


def test_trickling_bytes_do_not_extend_the_time_of_a_frame(peer: Peer) -> None:
    deadlines = Deadlines()
    for now_ms, byte in enumerate(frame(16, 1)[:-1]):
        hear(deadlines, peer, bytes([byte]), now_ms)
    assert codes(deadlines, FRAME) == ["frame_timeout"]


def test_each_frame_has_its_own_time(peer: Peer) -> None:
    deadlines = Deadlines()
    hear(deadlines, peer, frame(16, 1)[:3], 0)
    hear(deadlines, peer, frame(16, 1)[3:] + frame(16, 2)[:3], FRAME - 1)
    assert codes(deadlines, FRAME) == []
    assert codes(deadlines, 2 * FRAME - 1) == ["frame_timeout"]


def test_who_left_owes_nothing(peer: Peer) -> None:
    deadlines = Deadlines()
    deadlines.connected(peer, 0)
    hear(deadlines, peer, b"\x00", 0)
    deadlines.left(peer)
    assert codes(deadlines, FRAME) == []


def test_longest_silent_is_of_the_uid_and_silent_long_enough(peer: Peer) -> None:
    deadlines = Deadlines()
    deadlines.connected(peer, 0)
    assert deadlines.longest_silent(1000, 500, 499) is None
    assert deadlines.longest_silent(1001, 500, 500) is None
    assert deadlines.longest_silent(1000, 500, 500) is peer
