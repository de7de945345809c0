"""Chores: what happens by the clock alone, seen from outside over a real socket."""

from collections.abc import Sequence

import pytest
from support.full_journal import FullJournal
from support.shell import Shell, eventually, serving, wait_for
from support.waiting import wait_at_rest
from support.wire_peer import WirePeer

from stoker.broker.chores import CHECKPOINT_MS, OWNERS_MS, PRUNE_MS, SURVEY_MS
from stoker.broker.core.rules import Rules
from stoker.broker.journal import Retention
from stoker.broker.storage import PruneRow
from stoker.proto import limits
from stoker.proto.messages import Cancel, Drop, Enqueue, Hello, Show, Status

LONG_KEPT_IDS = Rules(id_kept_caller_ms=3 * limits.DAY_MS)
"""With the default an id is forgotten with its row."""


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


def ids_kept(shell: Shell) -> tuple[int, int]:
    """How many ids are remembered beyond their rows: by the core, and on disk."""
    return shell.core.statistics()["ids_kept"], shell.journal.statistics()["ids_kept"]


async def until_ids_kept(shell: Shell, expected: int) -> None:
    async def is_so() -> bool:
        return ids_kept(shell) == (expected, expected)

    await eventually(is_so, f"{expected} ids are kept")


@pytest.mark.trio
async def test_id_of_a_pruned_job_is_kept_and_forgotten_in_its_time(socket_path: str) -> None:
    async with serving(socket_path, rules=LONG_KEPT_IDS) as shell:
        peer = await shell.connect()
        await peer.ask(Enqueue("a", "send", b""))
        await peer.ask(Cancel("a"))
        shell.clock.ahead_ms += limits.DAY_MS + 1
        await until_ids_kept(shell, 1)
        shell.clock.ahead_ms += LONG_KEPT_IDS.id_kept_caller_ms
        await until_ids_kept(shell, 0)


class WatchedJournal(FullJournal):
    """Counts the looks for old rows and at the log."""

    looks = log_looks = 0

    def checkpoint_if_due(self) -> bool:
        self.log_looks += 1
        return super().checkpoint_if_due()

    def prunable(self, retention: Retention, *, boot_ms: int, limit: int) -> Sequence[PruneRow]:
        self.looks += 1
        return super().prunable(retention, boot_ms=boot_ms, limit=limit)


async def a_drop_held_back(shell: Shell, journal: WatchedJournal) -> WirePeer:
    """A peer whose finished job is past its retention, and whose drop of it does not fit on the disk."""
    peer = await shell.connect()
    await peer.ask(Enqueue("a", "send", b""))
    await peer.ask(Cancel("a"))
    journal.is_full = True
    await peer.say(Drop("a"))
    await wait_for(shell, "storage_full")
    shell.clock.ahead_ms += limits.DAY_MS + 1
    return peer


@pytest.mark.trio
async def test_row_whose_drop_is_held_back_is_not_pruned_as_well(socket_path: str) -> None:
    journal = WatchedJournal()
    async with serving(socket_path, journal=journal, rules=LONG_KEPT_IDS) as shell:
        peer, looks = await a_drop_held_back(shell, journal), journal.looks
        await peer.ask(Status())
        assert journal.looks == looks
        journal.is_full = False

        async def has_looked() -> bool:
            return journal.looks > looks

        await eventually(has_looked, "old rows are looked for")
        await peer.ask(Status())
        assert ids_kept(shell) == (1, 1)


@pytest.mark.trio
async def test_looks_for_old_rows_do_not_pile_up_behind_a_batch_that_is_held_back(socket_path: str) -> None:
    journal = WatchedJournal()
    async with serving(socket_path, journal=journal) as shell:
        peer, looks = await a_drop_held_back(shell, journal), journal.looks
        for _ in range(20):
            shell.clock.ahead_ms += PRUNE_MS
            await peer.ask(Status())
        journal.is_full = False
        await wait_for(shell, "batch_stored_after_all")
        # One was waiting; another may have come due since.
        await peer.ask(Status())
        assert 1 <= journal.looks - looks < 5


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


async def a_visit_that_hangs(shell: Shell) -> WirePeer:
    """A disk that stopped answering with a survey of it out, and a peer that has just enqueued."""
    peer = await shell.connect()
    await peer.ask(Status())
    shell.runner.held = True
    shell.clock.ahead_ms += SURVEY_MS

    async def is_out() -> bool:
        return shell.runner.is_busy

    await eventually(is_out, "a visit is out")
    await peer.say(Enqueue("a", "send", b"", True))
    return peer


REST_S = 2 * CHECKPOINT_MS / 1000


@pytest.mark.trio
async def test_visit_that_hangs_does_not_keep_the_broker_awake(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        await a_visit_that_hangs(shell)
        await wait_at_rest(REST_S, deadline_s=2.0)


@pytest.mark.trio
async def test_log_is_looked_at_as_soon_as_the_visit_before_has_ended(socket_path: str) -> None:
    journal = WatchedJournal()
    async with serving(socket_path, journal=journal) as shell:
        peer = await a_visit_that_hangs(shell)
        await wait_at_rest(REST_S, deadline_s=2.0)
        log_looks = journal.log_looks
        # No time passes, so that nothing comes due by itself.
        shell.clock.stop()
        shell.runner.let_go()
        await peer.receive()
        assert journal.log_looks == log_looks + 1
