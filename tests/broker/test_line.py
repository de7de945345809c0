"""A line: whose turn it is."""

from collections.abc import Iterator
from socket import socketpair

import pytest

from stoker.broker.access import EVERYTHING, Credentials
from stoker.broker.line import BUSY_FIRST_EVERY, LOOKED_AT_MAX, Line
from stoker.broker.peer import Peer
from stoker.broker.poller import Poller


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    ours, theirs = socketpair()
    poller = Poller()
    with ours, theirs:
        yield [
            Peer(id, ours, None, Credentials(7, 1, 1), EVERYTHING, poller, lambda _: None)
            for id in range(100)
        ]
    poller.close()


def test_who_came_first_is_served_first(peers: list[Peer]) -> None:
    line = Line()
    for peer in peers[:3]:
        line.join(peer)
    line.join(peers[0])
    assert line.next() == peers[:3]
    line.leave(peers[0])
    assert line.next() == peers[1:3]
    assert (len(line), peers[0] in line, peers[1] in line) == (2, False, True)


def busy_and_sparse(peers: list[Peer]) -> tuple[Line, Peer, Peer]:
    """A line in which one that always has more came first."""
    line, busy, sparse = Line(), peers[0], peers[1]
    busy.was_at_rest = False
    line.join(busy)
    line.join(sparse)
    return line, busy, sparse


def test_who_had_been_heard_to_the_end_goes_before_who_always_has_more(peers: list[Peer]) -> None:
    line, busy, sparse = busy_and_sparse(peers)
    assert line.next() == [sparse, busy]


def test_who_always_has_more_goes_first_now_and_then(peers: list[Peer]) -> None:
    line, busy, _ = busy_and_sparse(peers)
    firsts = [line.next()[0] for _ in range(3 * BUSY_FIRST_EVERY)]
    assert firsts.count(busy) == 3


def test_so_many_are_looked_at_in_a_round(peers: list[Peer]) -> None:
    line = Line()
    for peer in peers:
        line.join(peer)
    assert line.next() == peers[:LOOKED_AT_MAX]
