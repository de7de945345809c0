"""Chores: what happens by the clock alone, seen from outside over a real socket."""

import pytest
from support.shell import Shell, eventually, serving
from support.wire_peer import WirePeer

from stoker.broker.chores import OWNERS_MS
from stoker.proto import limits
from stoker.proto.messages import Cancel, Enqueue, Hello, Show, Status


async def shown(peer: WirePeer, id: str) -> object:
    """The state of a job, or the code of the refusal."""
    answer = await peer.ask(Show(id))
    return answer[2]["state"] if answer[0] == 0 else answer[2]


async def until_shown(peer: WirePeer, id: str, expected: str) -> None:
    async def is_so() -> bool:
        return await shown(peer, id) == expected

    await eventually(is_so, f"{id} is {expected}")


async def a_lost_worker_with(shell: Shell, id: str, boot: str) -> None:
    """A worker that got a job and hung up; its identity says in which boot it lived."""
    worker = await shell.connect()
    await worker.ask(Hello(1, "work", "w", [boot, 1, 1, 1, "nonce-01"], b"", ["send"], 1))
    await (await shell.connect()).ask(Enqueue(id, "send", b""))
    await worker.receive()
    worker.close()


@pytest.mark.trio
async def test_finished_job_past_its_retention_is_pruned(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.ask(Enqueue("a", "send", b""))
        await peer.ask(Cancel("a"))
        assert await shown(peer, "a") == "cancelled"
        shell.clock.ahead_ms += limits.DAY_MS + 1
        await until_shown(peer, "a", "job_not_found")


@pytest.mark.trio
async def test_waiting_job_is_never_pruned(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        for id in ("old", "finished"):
            await peer.ask(Enqueue(id, "send", b""))
        await peer.ask(Cancel("finished"))
        shell.clock.ahead_ms += limits.DAY_MS + 1
        await until_shown(peer, "finished", "job_not_found")
        assert await shown(peer, "old") == "ready"


@pytest.mark.slow
@pytest.mark.trio
async def test_absent_owner_that_is_proved_dead_is_not_waited_for(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        await a_lost_worker_with(shell, "a", boot="another-boot")
        peer = await shell.connect()
        shell.clock.ahead_ms += OWNERS_MS
        await until_shown(peer, "a", "ready")


@pytest.mark.trio
async def test_status_follows_the_survey(socket_path: str) -> None:
    async with serving(socket_path, low_water_bytes=10**18) as shell:
        peer = await shell.connect()
        status = (await peer.ask(Status()))[2]
        assert status["storage"]["full"] is True
        assert (await peer.ask(Enqueue("a", "send", b"")))[2] == "storage_full"
