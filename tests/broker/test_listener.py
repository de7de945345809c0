"""The listener: places and their limits, strangers, descriptors running out, and the death of peers."""

import array
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest
import trio
from support.shell import Shell, serving, wait_for
from support.waiting import wait_at_rest
from support.wire_peer import WirePeer, frame

from stoker.broker.listener import DESCRIPTORS_RESERVED, GIVES_WAY_MS, connections_max
from stoker.proto.messages import ANSWER, Cancel, Enqueue, Hello, Show, Status


async def a_client(shell: Shell) -> WirePeer:
    """A connection that has spoken, so that nobody takes its place."""
    peer = await shell.connect()
    assert (await peer.ask(Enqueue("first", "send", b"")))[0] == ANSWER
    return peer


@pytest.mark.parametrize(
    ("descriptors", "connections"), [(64, 16), (20_000, 9984), (DESCRIPTORS_RESERVED, 4)]
)
def test_places_follow_from_the_descriptors(descriptors: int, connections: int) -> None:
    assert connections_max(descriptors) == connections


@pytest.mark.trio
async def test_one_uid_gets_half_of_the_places_and_the_next_is_told(socket_path: str) -> None:
    async with serving(socket_path, capacity=6) as shell:
        peers = [await a_client(shell) for _ in range(3)]
        late = await shell.connect()
        assert await late.refusal() == "too_many_connections"
        assert (await peers[0].ask(Enqueue("again", "send", b"")))[0] == ANSWER


@pytest.mark.trio
async def test_place_is_free_again_when_its_peer_has_left(socket_path: str) -> None:
    async with serving(socket_path, capacity=6) as shell:
        peers = [await a_client(shell) for _ in range(3)]
        peers[0].close()
        await wait_at_rest(0.01)
        await a_client(shell)
        assert shell.listener.connection_count == 3


@pytest.mark.trio
async def test_longest_silent_connection_gives_way_to_a_newcomer(socket_path: str) -> None:
    async with serving(socket_path, capacity=6) as shell:
        silent = await shell.connect()
        await a_client(shell)
        await a_client(shell)
        shell.clock.ahead_ms += GIVES_WAY_MS
        await a_client(shell)
        assert await silent.refusal() == "too_many_connections"


@pytest.mark.trio
async def test_connection_in_mid_frame_for_longest_gives_way_to_a_newcomer(socket_path: str) -> None:
    async with serving(socket_path, capacity=6) as shell:
        longest, worker, other = await a_client(shell), await shell.connect(), await a_client(shell)
        await worker.ask(Hello(1, "work", "w", [], b"", ["send"], 1))
        for peer in (worker, longest, other):
            await peer.send(frame(16, 9)[:-1])
            await wait_at_rest(0.01)
            shell.clock.ahead_ms += 1
        assert await (await shell.connect()).refusal() == "too_many_connections"
        shell.clock.ahead_ms += GIVES_WAY_MS
        await a_client(shell)
        assert await longest.refusal() == "too_many_connections"


@pytest.mark.trio
async def test_connection_in_mid_frame_that_waits_for_an_answer_keeps_its_place(socket_path: str) -> None:
    async with serving(socket_path, capacity=4) as shell:
        waiting, other = await a_client(shell), await a_client(shell)
        await waiting.send(frame(18, 8, "first") + frame(16, 9)[:-1])
        await wait_at_rest(0.01)
        shell.clock.ahead_ms += GIVES_WAY_MS
        assert await (await shell.connect()).refusal() == "too_many_connections"
        await other.ask(Cancel("first"))
        assert (await waiting.receive())[:2] == [ANSWER, 8]


@contextmanager
def descriptors_left(count: int) -> Generator[None]:
    """Let this process open so many more descriptors and no more."""
    probe = os.dup(0)
    os.close(probe)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.trio
@pytest.mark.parametrize("left", [1, 2])
async def test_out_of_descriptors_is_said_and_the_listener_rests(socket_path: str, left: int) -> None:
    async with serving(socket_path) as shell:
        old = await a_client(shell)
        # One for the socket of the newcomer's own end, one for ours or none, none to watch its process by.
        with descriptors_left(left):
            newcomer = await shell.connect()
            await wait_for(shell, "accept_failed")
            assert await newcomer.refusal() == "too_many_connections"
            assert shell.listener.rests
            assert (await old.ask(Enqueue("again", "send", b"")))[0] == ANSWER


@pytest.mark.trio
async def test_full_service_is_back_when_descriptors_are(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        with descriptors_left(1):
            await shell.connect()
            await wait_for(shell, "accept_failed")
        with trio.fail_after(1):
            await a_client(shell)


@pytest.mark.trio
async def test_descriptors_that_are_sent_along_are_not_received(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await a_client(shell)
        before = len(os.listdir("/proc/self/fd"))
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
        try:
            await peer.socket.sendmsg([frame(16, 7)], [rights])
        except OSError as error:
            # Linux 6.16 and later refuse it to the sender already.
            assert error.errno == errno.EPERM
            await peer.send(frame(16, 7))
        assert (await peer.receive())[:2] == [ANSWER, 7]
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.trio
async def test_removed_socket_is_bound_anew_and_connections_stay(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        old = await a_client(shell)
        os.unlink(socket_path)
        shell.clock.ahead_ms += 1000
        await wait_for(shell, "socket_replaced")
        await a_client(shell)
        assert (await old.ask(Enqueue("again", "send", b"")))[0] == ANSWER


# --- the death of a peer -----------------------------------------------------------------------------------

WORKER = """
import socket, sys, time
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(bytes.fromhex(sys.argv[2]))
print(connection.recv(65536) and "ready", flush=True)
time.sleep(60)
"""


@contextmanager
def worker_process(path: str, first_words: bytes) -> Generator[subprocess.Popen[str]]:
    """A process that connects, says these bytes, and lives until it is killed."""
    command = [sys.executable, "-c", WORKER, path, first_words.hex()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def hello() -> bytes:
    return frame(2, 1, *Hello(1, "work", "w", ["boot-id-1", 1, 1, 1, "nonce-01"], b"", ["send"], 1, []))


@pytest.mark.slow
@pytest.mark.trio
async def test_job_of_a_killed_raw_worker_is_lost_at_once(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        with worker_process(socket_path, hello()) as process:
            assert process.stdout is not None
            await trio.to_thread.run_sync(process.stdout.readline)
            client = await shell.connect()
            await client.ask(Enqueue("a", "send", b""))
            process.send_signal(signal.SIGKILL)
            line = await wait_for(shell, "disconnected")
            shown = (await client.ask(Show("a")))[2]
        assert "died=True" in line
        assert (shown["state"], shown["outcome"]) == ("ready", "lost")


@pytest.mark.slow
@pytest.mark.trio
async def test_request_written_before_death_counts(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        with worker_process(socket_path, frame(10, 1, "last-words", "send", b"")) as process:
            assert process.stdout is not None
            await trio.to_thread.run_sync(process.stdout.readline)
            process.send_signal(signal.SIGKILL)
        client = await shell.connect()
        assert (await client.ask(Show("last-words")))[2]["state"] == "ready"
        await client.ask(Status())
        assert shell.listener.connection_count == 1
