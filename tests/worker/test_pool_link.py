"""The supervisor's link: reports are repeated until they are answered, and it always comes back."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support.waiting import wait_at_rest

from stoker.proto import codec, limits, messages, work
from stoker.proto.frames import FrameReader
from stoker.worker import pool_link
from stoker.worker.pool_link import PoolLink, PoolRefusedError

pytestmark = [pytest.mark.slow, pytest.mark.trio]

WELCOME = messages.Welcome(1, 1, 20, 1, 1, 1)
POOL_OP, BEAT_OP = work.OPS[work.Pool][0], work.OPS[work.Heartbeat][0]
EXITED_OP, KILL_OP = work.OPS[work.Exited][0], work.OPS[work.Kill][0]
KILL = work.Kill("nonce-12", [1, 7], "timeout", 100)


def an_exit(nonce: str = "nonce-12") -> work.Exited:
    return work.Exited(nonce, [[1, 7]], None, 9)


class Owner:
    """Writes down what the link says to the supervisor."""

    def __init__(self) -> None:
        self.welcomes = 0
        self.kills: list[work.Kill] = []

    def pool_message(self) -> work.Pool:
        return work.Pool(1, "pool", b"t" * limits.TICKET_BYTES, ("boot-id-1", 1, 2, 3, "nonce-00"), [], [])

    def nonces_seen_alive(self) -> list[str]:
        return ["nonce-12"]

    def welcomed(self) -> None:
        self.welcomes += 1

    def kill_wanted(self, kill: work.Kill) -> None:
        self.kills.append(kill)

    def recall_wanted(self, recall: work.Recall) -> work.Recalled | None:
        return work.Recalled(recall.worker, recall.through) if recall.worker == "nonce-12" else None


class Script:
    """One accepted connection, played by the test."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._reader = FrameReader()

    async def read(self, *, beats: bool = False) -> list[Any]:
        """The next frame; heartbeats are passed over unless they are asked for."""
        while True:
            while (body := self._reader.next_frame()) is None:
                data = await self.stream.receive_some()
                assert data, "the supervisor closed"
                self._reader.feed(data)
            fields = codec.decode(body)
            if beats or fields[0] != BEAT_OP:
                return fields

    async def send(self, op: int, number: int, *fields: Any) -> None:
        await self.stream.send_all(codec.encode([op, number, *fields]))

    async def welcome(self) -> None:
        fields = await self.read()
        assert fields[0] == POOL_OP
        await self.send(messages.ANSWER, fields[1], *WELCOME)

    async def refuse(self, code: str, text: str) -> None:
        """What comes next."""
        await self.send(messages.ERROR, (await self.read())[1], code, text, {})


class Stage:
    """A broker's socket, and a link that wants to reach it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.owner = Owner()
        self.said: list[str] = []
        self.link = PoolLink(self.path, self.owner, self.say)
        self._scripts: list[Script] = []
        self._listener: trio.SocketListener | None = None

    def say(self, event: str, **fields: object) -> None:
        self.said.append(event)

    async def accept(self) -> Script:
        if self._listener is None:
            sock = trio.socket.socket(trio.socket.AF_UNIX)
            await sock.bind(self.path)
            sock.listen()
            self._listener = trio.SocketListener(sock)
        script = Script(await self._listener.accept())
        self._scripts.append(script)
        return script

    def close(self) -> None:
        for script in self._scripts:
            script.stream.socket.close()
        if self._listener is not None:
            self._listener.socket.close()
            os.unlink(self.path)


@asynccontextmanager
async def running(directory: Path) -> AsyncGenerator[Stage]:
    stage = Stage(directory / "b.sock")
    try:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.link.run)
                yield stage
                nursery.cancel_scope.cancel()
    finally:
        stage.close()


async def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.lowlevel.checkpoint()


async def test_welcomed_pool_beats_for_its_workers(short_directory: Path) -> None:
    async with running(short_directory) as stage:
        script = await stage.accept()
        await script.welcome()
        for _ in range(3):
            assert (await script.read(beats=True))[2:] == [[], ["nonce-12"]]
        assert stage.owner.welcomes == 1


async def test_rhythm_follows_the_brokers_wish(short_directory: Path) -> None:
    async with running(short_directory) as stage:
        script = await stage.accept()
        await script.welcome()
        beat = await script.read(beats=True)
        await script.send(messages.ANSWER, beat[1], *work.Wishes(heartbeat_ms=60_000))
        await script.read(beats=True)
        with trio.move_on_after(0.2) as quiet:
            await script.read(beats=True)
        assert quiet.cancelled_caught


async def test_report_is_confirmed_by_its_answer_alone(short_directory: Path) -> None:
    async with running(short_directory) as stage:
        script = await stage.accept()
        await script.welcome()
        await wait_for(lambda: stage.owner.welcomes == 1)
        stage.link.report(an_exit())
        report = await script.read()
        assert report[0] == EXITED_OP
        assert stage.link.unconfirmed == ["nonce-12"]
        await script.send(messages.ANSWER, report[1])
        await stage.link.wait_settled()
        assert stage.link.unconfirmed == []


async def test_unconfirmed_report_is_repeated_after_every_reconnect(short_directory: Path) -> None:
    async with running(short_directory) as stage:
        stage.link.report(an_exit())
        for _ in range(3):
            script = await stage.accept()
            await script.welcome()
            assert (await script.read())[2] == "nonce-12"
            await script.stream.aclose()
        assert stage.link.unconfirmed == ["nonce-12"]


async def test_refused_report_is_not_repeated_for_ever(short_directory: Path) -> None:
    async with running(short_directory) as stage:
        stage.link.report(an_exit())
        script = await stage.accept()
        await script.welcome()
        report = await script.read()
        await script.send(messages.ERROR, report[1], "bad_message", "no", {})
        await stage.link.wait_settled()
        assert "report_refused" in stage.said


async def test_recall_is_answered_for_a_worker_that_is_there(short_directory: Path) -> None:
    async with running(short_directory) as stage:
        script = await stage.accept()
        await script.welcome()
        for nonce in ("nonce-99", "nonce-12"):
            await script.send(work.OPS[work.Recall][0], 0, nonce, [1, 5])
        op, _, *fields = await script.read()
        assert (op, fields) == (work.OPS[work.Recalled][0], ["nonce-12", [1, 5], None])


async def test_kill_reaches_the_supervisor(short_directory: Path) -> None:
    async with running(short_directory) as stage:
        script = await stage.accept()
        await script.welcome()
        await script.send(KILL_OP, 0, *KILL, "a field of a later release")
        await wait_for(lambda: stage.owner.kills == [KILL])


async def test_bytes_that_are_no_protocol_make_it_connect_anew(short_directory: Path) -> None:
    async with running(short_directory) as stage:
        script = await stage.accept()
        await script.stream.send_all(b"\x00\x00\x00\x01\xc1")
        await (await stage.accept()).welcome()
        await wait_for(lambda: stage.owner.welcomes == 1)
        assert "broker_link_broken" in stage.said


async def declare(stage: Stage, ended: list[Exception | None]) -> None:
    try:
        await stage.link.declare()
    except PoolRefusedError as error:
        ended.append(error)
    else:
        ended.append(None)


async def test_what_has_changed_is_said_on_the_same_connection(short_directory: Path) -> None:
    async with running(short_directory) as stage, trio.open_nursery() as nursery:
        script, ended = await stage.accept(), list[Exception | None]()
        await script.welcome()
        await wait_for(lambda: stage.owner.welcomes == 1)
        nursery.start_soon(declare, stage, ended)
        await script.welcome()
        await wait_for(lambda: ended == [None])
        assert stage.owner.welcomes == 1


async def test_declaration_waits_for_the_next_broker(short_directory: Path) -> None:
    async with running(short_directory) as stage, trio.open_nursery() as nursery:
        script, ended = await stage.accept(), list[Exception | None]()
        await script.welcome()
        await wait_for(lambda: stage.owner.welcomes == 1)
        nursery.start_soon(declare, stage, ended)
        await script.read()
        await script.stream.aclose()
        await (await stage.accept()).welcome()
        await wait_for(lambda: ended == [None])


@pytest.mark.parametrize("code", ["bad_message", "kinds_full"])
async def test_refused_declaration_is_told_and_the_link_goes_on(short_directory: Path, code: str) -> None:
    async with running(short_directory) as stage, trio.open_nursery() as nursery:
        script, ended = await stage.accept(), list[Exception | None]()
        await script.welcome()
        await wait_for(lambda: stage.owner.welcomes == 1)
        nursery.start_soon(declare, stage, ended)
        await script.refuse(code, "kind x")
        await wait_for(lambda: bool(ended))
        assert "kind x" in str(ended[0])
        assert (isinstance(ended[0], PoolRefusedError), stage.said[-1]) == (True, "broker_refused")
        await script.send(KILL_OP, 0, *KILL)
        await wait_for(lambda: stage.owner.kills == [KILL])


async def test_declaration_that_another_overtakes_does_not_wait_for_ever(short_directory: Path) -> None:
    async with running(short_directory) as stage, trio.open_nursery() as nursery:
        ended = list[Exception | None]()
        nursery.start_soon(declare, stage, ended)
        await wait_at_rest()
        nursery.start_soon(declare, stage, ended)
        await wait_for(lambda: ended == [None])
        await (await stage.accept()).welcome()
        await wait_for(lambda: ended == [None, None])


async def test_pool_that_is_shut_out_for_now_tries_again(short_directory: Path) -> None:
    async with running(short_directory) as stage:
        script = await stage.accept()
        await script.refuse("shutting_down", "no")
        await script.stream.aclose()
        await (await stage.accept()).welcome()
        await wait_for(lambda: stage.owner.welcomes == 1)


@pytest.mark.parametrize("code", ["pools_full", "kinds_full"])
async def test_pool_for_which_there_is_no_room_says_so_once_and_tries_again(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(pool_link, "FULL_S", 0.01)
    async with running(short_directory) as stage:
        for _ in range(3):
            script = await stage.accept()
            await script.refuse(code, "no room")
            await script.stream.aclose()
        await (await stage.accept()).welcome()
        await wait_for(lambda: stage.owner.welcomes == 1)
        assert stage.said.count("broker_refused") == 1


async def test_pool_for_which_there_is_no_room_waits_longer_than_for_a_broker(
    short_directory: Path,
) -> None:
    async with running(short_directory) as stage:
        script = await stage.accept()
        await script.refuse("pools_full", "no room")
        await script.stream.aclose()
        with trio.move_on_after(2 * pool_link.BACKOFF_S_MAX) as waited:
            await stage.accept()
        assert waited.cancelled_caught


@pytest.mark.parametrize("code", ["forbidden", "version_mismatch"])
async def test_pool_the_broker_will_not_have_says_so(short_directory: Path, code: str) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(PoolRefusedError, match=code)):
        async with running(short_directory) as stage:
            script = await stage.accept()
            await script.refuse(code, "no")
            await trio.sleep_forever()
