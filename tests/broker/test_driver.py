"""The driver over real sockets: order, holding back, payloads, text mode, verdicts, and the end."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from support.core_builders import fresh_id
from support.full_journal import FullJournal
from support.shell import Shell, eventually, serving, wait_for
from support.waiting import wait_at_rest
from support.wire_peer import DEADLINE_S, WirePeer, frame

from stoker.broker.driver import FINISH_MS
from stoker.broker.journal import JournalBrokenError
from stoker.broker.memory import MemoryJournal
from stoker.proto import limits, work
from stoker.proto.messages import (
    ANSWER,
    Cancel,
    Enqueue,
    Hello,
    Help,
    Jobs,
    Kick,
    Show,
    Snapshot,
    Status,
    Wait,
)

JOB = 40


async def a_worker(shell: Shell, *, slots: int = 1, identity: list[Any] | None = None) -> WirePeer:
    peer = await shell.connect()
    answer = await peer.ask(Hello(1, "work", "w", identity or [], b"", ["send"], slots))
    assert answer[0] == ANSWER
    return peer


def enqueue(id: str, **fields: Any) -> Enqueue:
    return Enqueue(id, "send", fields.pop("payload", b"payload"), **fields)


@pytest.mark.trio
async def test_enqueue_is_answered_after_it_is_stored(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        assert await peer.ask(enqueue("a")) == [ANSWER, 1, "a", 1]
        assert shell.journal.find("a").job is not None


@pytest.mark.trio
async def test_nothing_is_answered_while_the_disk_is_busy(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.ask(Status())
        shell.runner.held = True
        await peer.say(enqueue("a", fresh=True))
        with trio.move_on_after(0.05) as scope:
            await peer.receive()
        assert scope.cancelled_caught
        shell.runner.let_go()
        assert (await peer.receive())[:3] == [ANSWER, 2, "a"]


@pytest.mark.trio
async def test_heartbeat_is_answered_while_the_disk_is_busy(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        worker = await a_worker(shell)
        shell.runner.held = True
        await worker.say(work.Heartbeat())
        assert (await worker.receive())[:2] == [ANSWER, 2]


@pytest.mark.trio
async def test_pipelined_requests_of_one_connection_share_a_commit(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.ask(Status())
        commits = shell.journal.statistics()["commits"]
        burst = b"".join(frame(10, 10 + n, f"j{n}", "send", b"", True) for n in range(50))
        await peer.send(burst)
        numbers = [(await peer.receive())[1] for _ in range(50)]
        assert numbers == list(range(10, 60))
        assert shell.journal.statistics()["commits"] == commits + 1


@pytest.mark.trio
async def test_job_is_pushed_with_its_payload_and_acked(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        worker, client = await a_worker(shell), await shell.connect()
        await client.ask(enqueue("a", payload=b"\x00\xff"))
        op, _, token, id, *_, payload = (await worker.receive())[:9]
        assert (op, id, payload) == (JOB, "a", b"\x00\xff")
        assert await worker.ask(work.Ack(token, b"done")) == [ANSWER, 2]
        waited = await client.ask(Wait("a"))
        assert waited[2:7] == ["a", "done", "ok", "", b"done"]


@pytest.mark.trio
async def test_acks_wait_a_moment_and_share_the_commit_that_somebody_needs(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        worker, client = await a_worker(shell, slots=2), await shell.connect()
        tokens: list[Any] = []
        for id in ("a", "b"):
            await client.ask(enqueue(id))
            tokens.append((await worker.receive())[2])
        commits = shell.journal.statistics()["commits"]
        shell.clock.stop()
        for token in tokens:
            await worker.say(work.Ack(token))
        with trio.move_on_after(0.05) as scope:
            await worker.receive()
        assert scope.cancelled_caught
        await client.ask(Status())
        assert [await worker.receive() for _ in tokens] == [[ANSWER, 2], [ANSWER, 3]]
        assert shell.journal.statistics()["commits"] == commits + 1


@pytest.mark.trio
async def test_payload_that_left_memory_is_read_from_the_journal(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        worker, client = await a_worker(shell), await shell.connect()
        await client.ask(enqueue("a"))
        token = (await worker.receive())[2]
        await worker.ask(work.Release(token, "not_started"))
        assert (await worker.receive())[8] == b"payload"


@pytest.mark.trio
async def test_look_ups_keep_the_order_of_a_connection(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.say(enqueue("a"))
        await peer.say(Cancel("a"))
        await peer.say(enqueue("b", fresh=True))
        await peer.say(Jobs())
        answers = [await peer.receive() for _ in range(4)]
        assert [answer[:2] for answer in answers] == [[ANSWER, 1], [ANSWER, 2], [ANSWER, 3], [ANSWER, 4]]
        assert [(job["id"], job["state"]) for job in answers[3][2]] == [("a", "cancelled"), ("b", "ready")]


@pytest.mark.trio
async def test_repeat_of_a_finished_job_is_found_on_disk(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.ask(enqueue("a"))
        await peer.ask(Cancel("a"))
        assert (await peer.ask(enqueue("a")))[2:] == ["a", 1]
        assert (await peer.ask(enqueue("a", payload=b"other")))[2] == "conflict"


@pytest.mark.trio
async def test_look_up_overtaken_by_the_end_of_its_job_is_made_again(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        asker, canceller = await shell.connect(), await shell.connect()
        await asker.ask(enqueue("a"))
        shell.runner.held = True
        await asker.say(Show("a"))
        await wait_at_rest(0.02)
        await canceller.say(Cancel("a"))
        await wait_at_rest(0.02)
        shell.runner.let_go()
        assert (await asker.receive())[2]["state"] == "cancelled"


@pytest.mark.trio
async def test_look_up_made_again_comes_before_what_waits_behind_it(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        asker, canceller = await shell.connect(), await shell.connect()
        for id in ("a", "b"):
            await asker.ask(enqueue(id))
        shell.runner.held = True
        # In one write: while the first is looked up nothing more is read.
        await asker.send(frame(14, 11, "a") + frame(14, 12, "b"))
        await wait_at_rest(0.02)
        await canceller.say(Cancel("a"))
        await wait_at_rest(0.02)
        shell.runner.let_go()
        answers = [await asker.receive() for _ in range(2)]
        assert [(number, job["state"]) for _, number, job in answers] == [(11, "cancelled"), (12, "ready")]


@pytest.mark.trio
async def test_kick_of_a_queue_looks_its_dead_up(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        worker, client = await a_worker(shell), await shell.connect()
        for id in ("a", "b"):
            await client.ask(enqueue(id))
            token = (await worker.receive())[2]
            await worker.ask(work.Nack(token, "permanent", "no"))
        assert (await client.ask(Kick(queue="default")))[2] == 2


@pytest.mark.trio
async def test_listing_pages_on(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        for id in ("a", "b", "c"):
            await peer.ask(enqueue(id))
        page, after = (await peer.ask(Jobs(limit=2)))[2:]
        assert [job["id"] for job in page] == ["a", "b"]
        page, after = (await peer.ask(Jobs(limit=2, after=after)))[2:]
        assert ([job["id"] for job in page], after) == (["c"], 0)


@pytest.mark.trio
async def test_snapshot_is_written_once(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        answer = await peer.ask(Snapshot("one"))
        assert answer[0] == ANSWER and answer[2].endswith("/snapshots/one.db")
        assert (await peer.ask(Snapshot("one")))[2] == "name_taken"


@pytest.mark.trio
async def test_snapshot_says_what_is_in_its_way(socket_path: str) -> None:
    directory = Path(socket_path).parent / "snapshots"
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        directory.touch()
        code, text = (await peer.ask(Snapshot("one")))[2:4]
        assert (code, text) == ("snapshot_failed", f"{directory} is not a directory; move it away")


@pytest.mark.trio
async def test_status_says_what_the_shell_knows(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        status = (await (await shell.connect()).ask(Status()))[2]
        assert status["storage"]["full"] is False
        assert status["connections"] == 1
        assert status["queues"] == {}


# --- text mode ----------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_text_lines_are_answered_one_by_one_in_order(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.send(
            b'{"op": "enqueue", "id": "a", "kind": "send", "payload": "x"}\n{"op": "show", "id": "a"}\nquit\r\n'
        )
        lines = [json.loads(line) for line in (await peer.until_closed()).splitlines()]
        assert lines[0] == {"ok": True, "id": "a", "number": 1}
        assert lines[1]["job"]["state"] == "ready"


@pytest.mark.trio
async def test_text_peer_that_closed_its_sending_half_gets_its_answer(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.send(b"stats\r\n")
        peer.socket.shutdown(trio.socket.SHUT_WR)
        assert (await peer.until_closed()).startswith(b"OK ")


@pytest.mark.trio
async def test_what_follows_a_progress_is_answered_though_the_progress_is_not(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.send(
            b'{"op": "hello", "version": 1, "role": "work", "kinds": ["send"], "slots": 1}\n'
            b'{"op": "progress", "token": [1, 1], "done": 1, "total": 2}\n'
            b'{"op": "progress", "token": [1, 1], "done": -1}\n'
            b'{"op": "heartbeat", "request": 7}\nquit\r\n'
        )
        lines = [json.loads(line) for line in (await peer.until_closed()).splitlines()]
        assert [line["ok"] for line in lines] == [True, False, True]
        assert "`done`" in lines[1]["message"]
        assert lines[2]["request"] == 7


@pytest.mark.trio
async def test_http_is_refused_and_nothing_after_it_is_read(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        line = b'{"op": "enqueue", "id": "evil", "kind": "send", "payload": ""}\n'
        await peer.send(b"POST / HTTP/1.1\r\n\r\n" + line)
        assert json.loads(await peer.until_closed())["error"] == "http_refused"
        assert shell.journal.find("evil").job is None


# --- hostile peers ---------------------------------------------------------------------------------------


@pytest.mark.trio
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x00\x00\x00\x00", "bad_frame"),
        (b"\x00\xff\xff\xff", "frame_too_large"),
        (frame(1, 2) + b"\x00\x00\x00\x01\xc1", "bad_frame"),
        (b"\xff\xff\xff\xff", "frame_too_large"),
        (b"\x00\x00\x00\x05" + b"\xdd\xff\xff\xff\xff", "bad_frame"),
    ],
    ids=["empty", "too large", "reserved byte", "not printable", "huge claim"],
)
async def test_bytes_that_are_no_frame_end_only_their_connection(
    socket_path: str, data: bytes, code: str
) -> None:
    async with serving(socket_path) as shell:
        bystander, peer = await shell.connect(), await shell.connect()
        await peer.send(data)
        closing = await peer.until_closed()
        assert code.encode() in closing
        assert (await bystander.ask(enqueue("a")))[0] == ANSWER


@pytest.mark.trio
async def test_body_of_a_refused_frame_is_never_executed(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        evil = frame(10, 1, "evil", "send", b"")
        await peer.send((limits.FRAME_BYTES_MAX).to_bytes(4, "big") + evil * 10)
        assert await peer.refusal() == "frame_too_large"
        assert shell.journal.find("evil").job is None


@pytest.mark.trio
async def test_request_before_a_bad_frame_is_still_executed_and_answered(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.send(frame(10, 1, "a", "send", b"") + b"\x00\x00\x00\x00")
        assert await peer.receive() == [ANSWER, 1, "a", 1]
        assert await peer.refusal() == "bad_frame"


@pytest.mark.trio
async def test_error_that_ends_a_connection_waits_for_the_disk_as_the_answers_before_it(
    socket_path: str,
) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.ask(Status())
        shell.runner.held = True
        await peer.send(frame(10, 2, "a", "send", b"", True) + b"\x00\x00\x00\x01\xc1")
        await wait_at_rest(0.05)
        shell.runner.let_go()
        assert await peer.receive() == [ANSWER, 2, "a", 1]
        assert await peer.refusal() == "bad_frame"


@pytest.mark.trio
async def test_error_that_ends_a_connection_does_not_wait_long_for_answers(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.ask(enqueue("a"))
        await peer.say(Wait("a"))
        await peer.send(b"\x00\x00\x00\x00")
        await wait_at_rest(0.02)
        shell.clock.ahead_ms += FINISH_MS
        assert await peer.refusal() == "bad_frame"


@pytest.mark.trio
async def test_peer_that_reads_nothing_after_its_error_does_not_keep_its_place(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        deaf, operator = await shell.connect(), await shell.connect()
        # More than a socket holds, and not so much that nothing more would be taken up.
        count = limits.OUTGOING_BYTES_PAUSE // len(frame(*await deaf.ask(Help())))
        await deaf.send(frame(3, 1) * count + b"\x00\x00\x00\x00")
        await wait_at_rest(0.02)

        async def alone() -> bool:
            shell.clock.ahead_ms += FINISH_MS
            return bool((await operator.ask(Status()))[2]["connections"] == 1)

        await eventually(alone, "its place is free")


@pytest.mark.trio
async def test_one_byte_at_a_time_is_understood(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        for byte in frame(16, 1):
            await peer.send(bytes([byte]))
            await wait_at_rest()
        assert (await peer.receive())[0] == ANSWER


@pytest.mark.trio
async def test_silent_peer_is_closed_after_its_time(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await (await shell.connect()).ask(Status())
        shell.clock.ahead_ms += limits.HANDSHAKE_MS
        assert await peer.refusal() == "handshake_timeout"


@pytest.mark.trio
async def test_frame_that_stays_incomplete_is_cut_off(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.send(frame(16, 1)[:-1])
        await wait_at_rest(0.01)
        shell.clock.ahead_ms += limits.FRAME_MS_MAX
        assert await peer.refusal() == "frame_timeout"


@pytest.mark.trio
async def test_peer_that_does_not_read_is_held_and_others_are_not(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        deaf, other = await shell.connect(), await shell.connect()
        burst = b"".join(frame(16, number) for number in range(1, 401))
        with trio.move_on_after(0.2):
            while True:
                await deaf.send(burst)
        with trio.fail_after(1):
            assert (await other.ask(enqueue("a")))[0] == ANSWER


@pytest.mark.trio
async def test_peer_that_reads_late_gets_whole_frames(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        peer = await shell.connect()
        await peer.send(b"".join(frame(16, number) for number in range(1, 2001)))
        await wait_at_rest(0.02)
        assert [(await peer.receive())[1] for _ in range(2000)] == list(range(1, 2001))


# --- workers come and go ---------------------------------------------------------------------------------


def identity(nonce: str) -> list[Any]:
    return ["boot-id-1", 4026531836, 1, 1, nonce]


@pytest.mark.trio
async def test_worker_that_hung_up_keeps_its_lease_and_comes_back_to_it(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        first, client = await a_worker(shell, identity=identity("nonce-01")), await shell.connect()
        await client.ask(enqueue("a"))
        token = (await first.receive())[2]
        first.close()
        await wait_for(shell, "disconnected")
        again = await shell.connect()
        held = [[*token, "running"]]
        welcome = await again.ask(Hello(1, "work", "w", identity("nonce-01"), b"", ["send"], 1, held))
        assert welcome[8] == []
        assert (await again.ask(work.Ack(token)))[0] == ANSWER


@pytest.mark.trio
async def test_ack_on_the_older_connection_is_heard_before_the_new_hello(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        first, client = await a_worker(shell, identity=identity("nonce-01")), await shell.connect()
        await client.ask(enqueue("a"))
        token = (await first.receive())[2]
        again = await shell.connect()
        hello = frame(2, 1, *Hello(1, "work", "w", identity("nonce-01"), b"", ["send"], 1, []))
        # Written in one go without a checkpoint between, so that both wait in the sockets.
        again.socket._sock.send(hello)  # type: ignore[attr-defined]  # the plain socket below
        first.socket._sock.send(frame(41, 2, token))  # type: ignore[attr-defined]  # the same
        assert (await again.receive())[0] == ANSWER
        assert (await client.ask(Show("a")))[2]["outcome"] == "ok"


@pytest.mark.trio
async def test_stall_of_the_broker_expires_no_lease(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        worker, client = await a_worker(shell), await shell.connect()
        await client.ask(enqueue("a", lease_ms=limits.LEASE_MS_MIN))
        token = (await worker.receive())[2]
        shell.clock.ahead_ms += 60_000
        await wait_for(shell, "broker_stalled")
        assert (await worker.ask(work.Ack(token)))[0] == ANSWER


async def wishes_within(shell: Shell, worker: WirePeer, token: list[int], passed_ms: int) -> list[Any]:
    """What a worker hears of its attempt when so much time has passed, in steps that are no stall."""
    cancelled: list[Any] = []
    for _ in range(passed_ms // 90):
        shell.clock.ahead_ms += 90
        cancelled = (await worker.ask(work.Heartbeat([token])))[4]
    return cancelled


@pytest.mark.trio
async def test_stall_prolongs_nothing_that_begins_after_it(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        worker, client = await a_worker(shell), await shell.connect()
        await client.ask(enqueue("a", time_limit_ms=1000))
        await client.ask(enqueue("b", time_limit_ms=1000))
        token = (await worker.receive())[2]
        shell.clock.ahead_ms += 15_000
        # Read in the round that finds out about the stall.
        await worker.say(work.Ack(token))
        assert (await worker.receive())[0] == ANSWER
        token = (await worker.receive())[2]
        assert await wishes_within(shell, worker, token, 900) == []
        assert await wishes_within(shell, worker, token, 270) == [token]


# --- storage ---------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_full_disk_refuses_enqueues_and_recovers_by_itself(socket_path: str) -> None:
    journal = FullJournal()
    async with serving(socket_path, journal=journal) as shell:
        first, second = await shell.connect(), await shell.connect()
        await first.ask(Status())
        journal.is_full = True
        await first.say(enqueue("a", fresh=True))
        await wait_for(shell, "storage_full")
        assert (await second.ask(Status()))[2]["storage"]["full"] is True
        journal.is_full = False
        assert (await first.receive())[2] == "a"
        assert (await second.ask(enqueue("b", fresh=True)))[2] == "storage_full"


@pytest.mark.trio
async def test_peer_that_filled_a_batch_is_heard_while_none_gets_to_the_disk(socket_path: str) -> None:
    journal = FullJournal()
    async with serving(socket_path, journal=journal) as shell:
        # Late enough for its ids to be believed fresh, so that nothing of this peer waits for a look-up.
        shell.clock.ahead_ms += 2 * limits.FRESH_MS
        peer, other = await shell.connect(), await shell.connect()
        await peer.ask(Status())
        shell.runner.held = True
        payload, wall_ms = bytes(limits.PAYLOAD_BYTES_MAX), shell.clock().wall_ms

        async def in_flight() -> bool:
            return not (shell.driver.committer.is_idle or shell.driver.committer.is_open)

        await other.say(enqueue(fresh_id(wall_ms), fresh=True))
        await eventually(in_flight, "a batch in flight")
        for number in range(1, limits.BATCH_BYTES_MAX // len(payload) + 2):
            await peer.say(enqueue(fresh_id(wall_ms, number), payload=payload, fresh=True))
        journal.is_full = True
        shell.runner.let_go()
        await wait_for(shell, "storage_full")
        with trio.fail_after(DEADLINE_S):
            assert (await peer.ask(Status()))[2]["storage"]["full"] is True


async def a_push_held_back(shell: Shell, journal: FullJournal, **fields: int) -> tuple[WirePeer, WirePeer]:
    """A client that enqueued, and a worker whose push waits in a batch that does not fit on the disk."""
    client, worker = await shell.connect(), await a_worker(shell)
    await client.ask(Status())
    journal.is_full = True
    await client.say(enqueue("a", fresh=True, **fields))
    await wait_for(shell, "storage_full")
    return client, worker


@pytest.mark.trio
@pytest.mark.parametrize("fields", [{"lease_ms": limits.LEASE_MS_MIN}, {"time_limit_ms": 1000}], ids=str)
async def test_attempt_does_not_age_while_its_push_is_held_back(
    socket_path: str, fields: dict[str, int]
) -> None:
    journal = FullJournal()
    async with serving(socket_path, journal=journal) as shell:
        client, worker = await a_push_held_back(shell, journal, **fields)
        shell.clock.ahead_ms += limits.MINUTE_MS
        await client.ask(Status())
        journal.is_full = False
        token = (await worker.receive())[2]
        # Answered after a round in which the core was told of the time, if it is told at all.
        await client.ask(Status())
        assert (await worker.ask(work.Ack(token)))[0] == ANSWER
        job = (await client.ask(Show("a")))[2]
        assert (job["outcome"], job["attempt"]) == ("ok", 1)


@pytest.mark.trio
@pytest.mark.parametrize("joins_after_ms", [0, limits.MINUTE_MS])
async def test_time_limit_counts_from_when_a_full_disk_let_the_job_go(
    socket_path: str, joins_after_ms: int
) -> None:
    journal = FullJournal()
    async with serving(socket_path, journal=journal) as shell:
        client = await shell.connect()
        await client.ask(enqueue("a", time_limit_ms=1000))
        journal.is_full = True
        await client.say(enqueue("b", fresh=True))
        await wait_for(shell, "storage_full")
        shell.clock.ahead_ms += joins_after_ms
        worker = await shell.connect()
        await worker.say(Hello(1, "work", "w", [], b"", ["send"], 1))
        await wait_at_rest(0.02)
        shell.clock.ahead_ms += limits.MINUTE_MS
        await (await shell.connect()).ask(Status())
        journal.is_full = False
        await worker.receive()
        token = (await worker.receive())[2]
        assert await wishes_within(shell, worker, token, 900) == []
        assert await wishes_within(shell, worker, token, 270) == [token]


@pytest.mark.trio
async def test_core_is_told_once_how_long_a_batch_was_held(socket_path: str) -> None:
    journal = FullJournal()
    async with serving(socket_path, journal=journal) as shell:
        client, _ = await a_push_held_back(shell, journal)
        shell.clock.ahead_ms += limits.MINUTE_MS
        await client.ask(Status())
        journal.is_full = False
        await wait_for(shell, "broker_stalled")
        told = [line.partition("stalled_ms=")[2] for line in shell.lines if "broker_stalled" in line]
        assert [int(stalled_ms) // limits.MINUTE_MS for stalled_ms in told] == [1]


@pytest.mark.trio
async def test_deadline_that_passed_while_a_batch_is_held_keeps_nobody_busy(socket_path: str) -> None:
    journal = FullJournal()
    async with serving(socket_path, journal=journal) as shell:
        await a_push_held_back(shell, journal, lease_ms=limits.LEASE_MS_MIN)
        shell.clock.ahead_ms += limits.LEASE_MS_MIN
        await wait_at_rest(0.05, deadline_s=DEADLINE_S)


@pytest.mark.trio
async def test_broken_storage_ends_the_driver_without_another_answer(socket_path: str) -> None:
    journal = MemoryJournal()
    with pytest.raises(ExceptionGroup) as raised:
        async with serving(socket_path, journal=journal) as shell:
            peer = await shell.connect()
            await peer.ask(Status())
            journal.fail_commit(1, JournalBrokenError, stored=True)
            await peer.say(enqueue("a", fresh=True))
            await peer.receive()
    assert raised.group_contains(JournalBrokenError)


# --- the end ---------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_stop_answers_who_waits_and_stores_what_was_decided(socket_path: str) -> None:
    shell = Shell(socket_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shell.driver.run)
        waiter = await shell.connect()
        await waiter.ask(enqueue("a"))
        await waiter.say(Wait("a"))
        await wait_at_rest(0.01)
        shell.driver.stop()
        assert (await waiter.receive())[2] == "shutting_down"
    shell.close()
    assert shell.driver.committer.is_idle


async def a_push_behind_a_slow_disk(
    shell: Shell, step_ms: int, **fields: int
) -> tuple[WirePeer, WirePeer, list[int]]:
    """A job that leaves 10 steps late: its client, its worker, its token."""
    client, bystander, worker = await shell.connect(), await shell.connect(), await shell.connect()
    await client.ask(enqueue("a", **fields))
    await bystander.ask(Hello(1, "work", "other", [], b"", ["other"], 1))
    shell.runner.held = True
    await worker.say(Hello(1, "work", "w", [], b"", ["send"], 1))
    await wait_at_rest(0.02)
    for _ in range(10):
        shell.clock.ahead_ms += step_ms
        await bystander.ask(work.Heartbeat())
    shell.runner.let_go()
    await worker.receive()
    return client, worker, (await worker.receive())[2]


@pytest.mark.trio
async def test_attempt_does_not_age_while_a_slow_disk_holds_its_push_back(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        client, worker, token = await a_push_behind_a_slow_disk(shell, 60, lease_ms=limits.LEASE_MS_MIN)
        assert (await worker.ask(work.Ack(token)))[0] == ANSWER
        shown = (await client.ask(Show("a")))[2]
        assert (shown["state"], [row["outcome"] for row in shown["history"]]) == ("done", ["ok"])


@pytest.mark.trio
async def test_time_limit_counts_from_when_a_slow_disk_let_the_job_go(socket_path: str) -> None:
    async with serving(socket_path) as shell:
        # Less than a stall at a time, and no deadline comes due meanwhile.
        client, worker, token = await a_push_behind_a_slow_disk(shell, 90, time_limit_ms=1000)
        assert await wishes_within(shell, worker, token, 450) == []
        assert (await worker.ask(work.Ack(token)))[0] == ANSWER
        assert (await client.ask(Show("a")))[2]["outcome"] == "ok"
