"""The verdict on a connection that has ended: dead, or only gone."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
import trio
from support.shell import LogLines, eventually, serving
from support.wire_peer import WirePeer, frame

from stoker.broker.access import EVERYTHING, Credentials
from stoker.broker.core.events import Disconnected, Event, PeerExited
from stoker.broker.departures import VERDICT_MS, Departures
from stoker.broker.intake import SERVER_REQUESTS
from stoker.broker.peer import Peer
from stoker.broker.poller import Poller
from stoker.proto.connection import END_OF_FILE
from stoker.proto.limits import READ_BYTES
from stoker.proto.messages import ANSWER, Enqueue, Hello, Status
from stoker.proto.work import Ack


class Bench:
    """Departures, and what they told the core."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.log = LogLines()
        self.missed: set[int] = set()
        self.departures = Departures(self.told.append, self.log, self.missed.__contains__)
        self.poller = Poller()
        self.peers: list[Peer] = []

    def a_peer(self, *, role: str = "work", watched: bool = True) -> Peer:
        """A peer that was introduced; its pidfd is some descriptor that is never ready."""
        ours, theirs = socket.socketpair()
        theirs.close()
        pidfd = os.eventfd(0) if watched else None
        peer = Peer(1, ours, pidfd, Credentials(7, 0, 0), EVERYTHING, self.poller, self.on_input)
        peer.connection.receive_data(frame(2, 1, *Hello(1, role)))
        assert peer.connection.next_event() is not None
        peer.introduced = True
        peer.watch()
        self.peers.append(peer)
        return peer

    def on_input(self, peer: Peer) -> None:
        self.departures.settled(peer)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    for peer in bench.peers:
        peer.close()


def test_process_that_dies_a_moment_later_is_dead(bench: Bench) -> None:
    peer = bench.a_peer()
    bench.departures.add(peer, 0)
    assert bench.told == []
    peer.process_ended(0)
    assert bench.told == [PeerExited(1), Disconnected(1)]


def test_process_that_lives_on_is_only_gone(bench: Bench) -> None:
    bench.departures.add(bench.a_peer(), 0)
    bench.departures.pass_time(VERDICT_MS - 1)
    assert bench.told == []
    bench.departures.pass_time(VERDICT_MS)
    assert bench.told == [Disconnected(1)]


def test_process_known_to_be_dead_is_told_at_once(bench: Bench) -> None:
    peer = bench.a_peer()
    peer.exited = True
    bench.departures.add(peer, 0)
    assert bench.told == [PeerExited(1), Disconnected(1)]


@pytest.mark.parametrize(("role", "watched"), [("submit", True), ("work", False)])
def test_verdict_is_not_waited_for_where_it_means_nothing(bench: Bench, role: str, *, watched: bool) -> None:
    bench.departures.add(bench.a_peer(role=role, watched=watched), 0)
    assert bench.told == [Disconnected(1)]


def test_worker_that_is_back_lives(bench: Bench) -> None:
    peer = bench.a_peer()
    peer.key = ("nonce",)
    bench.departures.add(peer, 0)
    bench.departures.returned(("nonce",))
    assert bench.told == [Disconnected(1)]
    assert peer.pidfd is None


def test_peer_the_core_never_heard_of_leaves_in_silence(bench: Bench) -> None:
    peer = bench.a_peer()
    peer.introduced = False
    bench.departures.add(peer, 0)
    assert bench.told == []


def test_end_that_leaves_something_open_is_logged(bench: Bench) -> None:
    peer = bench.a_peer()
    peer.key, peer.exited = ("nonce",), True
    bench.missed.add(peer.id)
    bench.departures.add(peer, 0)
    assert bench.log.lines == ['disconnected pid=7 died=True reason=""']


def test_orderly_end_is_not_logged(bench: Bench) -> None:
    peer = bench.a_peer()
    peer.key, peer.exited, peer.reason = ("nonce",), True, END_OF_FILE
    bench.departures.add(peer, 0)
    assert bench.log.lines == []


def test_end_of_a_peer_that_spoke_nonsense_is_logged(bench: Bench) -> None:
    peer = bench.a_peer()
    peer.key, peer.exited, peer.reason = ("nonce",), True, "bad_frame"
    bench.departures.add(peer, 0)
    assert bench.log.lines == ["disconnected pid=7 died=True reason=bad_frame"]


# --- in the driver -----------------------------------------------------------------------------------------

LENDER = """
import socket, sys, time
connection = socket.socket(socket.AF_UNIX)
connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
connection.connect(sys.argv[1])
socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b"x"], [connection.fileno()])
time.sleep(60)  # Until it is killed.
"""


@contextmanager
def another_process(path: str) -> Generator[tuple[WirePeer, subprocess.Popen[bytes]]]:
    """A process that connects and only lives; its words are put into its mouth by the peer."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", LENDER, path, str(theirs.fileno())]
    with ours, theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
        ours.settimeout(10)
        connected = socket.socket(fileno=socket.recv_fds(ours, 1, 1)[1][0])
        peer = WirePeer(trio.socket.from_stdlib_socket(connected))
        yield peer, process
        peer.close()
        process.kill()


@pytest.mark.slow
@pytest.mark.trio
async def test_all_acks_that_were_written_before_death_count(socket_path: str) -> None:
    count, result = 2 * SERVER_REQUESTS, bytes(400)
    async with serving(socket_path) as shell:
        client = await shell.connect()
        with another_process(socket_path) as (worker, process):
            assert (await worker.ask(Hello(1, "work", "w", [], b"", ["send"], count)))[0] == ANSWER
            for number in range(count):
                await client.say(Enqueue(f"j{number}", "send", b"", True))
            tokens = [(await worker.receive())[2] for _ in range(count)]
            acks = b"".join(frame(41, 2 + n, *Ack(token, result)) for n, token in enumerate(tokens))
            # Without giving the broker a turn: it sees the acks, the hang-up and the death all at once.
            assert worker.socket._sock.send(acks) == len(acks) > 3 * READ_BYTES  # type: ignore[attr-defined]  # the plain socket below
            worker.close()
            process.kill()
            process.wait(10)

        async def all_done() -> bool:
            return bool((await client.ask(Status()))[2]["queues"]["default"]["done"] == count)

        await eventually(all_done, "all that was acked is done")
