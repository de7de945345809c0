"""Laggards: who reads nothing goes after its time, and of many those who have read nothing for longest."""

import socket
from collections.abc import Callable, Iterator

import pytest
from support.shell import serving, wait_for
from support.waiting import wait_at_rest
from support.wire_peer import frame

from stoker.broker.access import EVERYTHING, Credentials
from stoker.broker.laggards import Laggards
from stoker.broker.peer import Peer
from stoker.broker.poller import Poller
from stoker.proto import limits
from stoker.proto.messages import ANSWER, Enqueue, Status
from stoker.proto.model import Role

MUCH = 20 * limits.MIB
"""Three of these are borne, four are not."""

Deaf = Callable[..., tuple[Peer, socket.socket]]


@pytest.fixture
def deaf() -> Iterator[Deaf]:
    """Makes a peer that has been sent so much, and the other end, which has read none of it."""
    sockets: list[socket.socket] = []
    peers: list[Peer] = []

    def make(size: int = MUCH, role: Role | None = None) -> tuple[Peer, socket.socket]:
        ours, theirs = socket.socketpair()
        peer = Peer(len(peers), ours, None, Credentials(7, 1000, 1000), EVERYTHING, Poller(), lambda _: None)
        peer.watch()
        peer.connection.role = role
        peer.send(bytes(size))
        peer.flush()
        sockets.append(theirs)
        peers.append(peer)
        return peer, theirs

    yield make
    for peer in peers:
        peer.close()
    for each in sockets:
        each.close()


class Times:
    """The time of the round."""

    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_who_has_taken_nothing_is_overdue_after_its_time(deaf: Deaf) -> None:
    times, (peer, _) = Times(), deaf()
    laggards = Laggards(times)
    assert laggards.flushed(peer) == []
    times.now_ms = limits.UNREAD_MS_MAX - 1
    assert laggards.overdue() == []
    times.now_ms += 1
    assert laggards.overdue() == [peer]


def test_who_reads_a_little_has_its_time_anew(deaf: Deaf) -> None:
    times, (peer, theirs) = Times(), deaf()
    laggards = Laggards(times)
    laggards.flushed(peer)
    times.now_ms = limits.UNREAD_MS_MAX - 1
    theirs.recv(limits.MIB)
    peer.flush()
    laggards.flushed(peer)
    times.now_ms += 1
    assert laggards.overdue() == []


def test_who_has_read_everything_is_no_laggard(deaf: Deaf) -> None:
    peer, theirs = deaf(limits.MIB)
    laggards = Laggards(Times())
    laggards.flushed(peer)
    assert peer in laggards
    while not peer.is_flushed:
        theirs.recv(limits.MIB)
        peer.flush()
    laggards.flushed(peer)
    assert peer not in laggards


@pytest.mark.parametrize("role", [Role.WORK, Role.SUPERVISE])
def test_worker_or_supervisor_that_is_stopped_keeps_its_place(deaf: Deaf, role: Role) -> None:
    times, (peer, _) = Times(), deaf(role=role)
    laggards = Laggards(times)
    laggards.flushed(peer)
    times.now_ms = limits.UNREAD_MS_MAX
    assert laggards.overdue() == []


def test_of_too_many_the_one_goes_that_has_read_nothing_for_longest(deaf: Deaf) -> None:
    laggards = Laggards(Times())
    peers = [deaf()[0] for _ in range(4)]
    assert [laggards.flushed(peer) for peer in peers] == [[], [], [], peers[:1]]


def test_of_too_many_workers_go_last(deaf: Deaf) -> None:
    laggards = Laggards(Times())
    peers = [deaf(role=role)[0] for role in (Role.WORK, None, None, None)]
    assert [laggards.flushed(peer) for peer in peers] == [[], [], [], peers[1:2]]


def test_what_the_gone_have_left_does_not_count(deaf: Deaf) -> None:
    laggards = Laggards(Times())
    peers = [deaf()[0] for _ in range(4)]
    for peer in peers[:3]:
        laggards.flushed(peer)
    peers[0].close()
    assert laggards.flushed(peers[3]) == []


@pytest.mark.trio
async def test_deaf_client_is_disconnected_and_others_are_served(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        honest, silent = await shell.connect(), await shell.connect()
        await honest.ask(Enqueue("large", "send", bytes(limits.PAYLOAD_BYTES_MAX)))
        await silent.send(frame(14, 1, "large", True))
        await honest.ask(Status())
        for _ in range(2):
            shell.clock.ahead_ms += limits.UNREAD_MS_MAX
            await wait_at_rest(0.01)
        assert "unread_bytes=" in await wait_for(shell, "cut_off")
        assert (await honest.ask(Status()))[0] == ANSWER
        assert shell.listener.connection_count == 1
