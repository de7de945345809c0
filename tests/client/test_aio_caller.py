"""Lines of the asynchronous client: one for each event loop, whole after cancels, timeouts and forks."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.forking import forked
from support.scripted_broker import Close, Hang, Request, ScriptedBroker, stores_everything
from support.threaded_broker import broker_at
from support.waiting import wait_until

from stoker import AsyncClient, BrokerUnreachableError, ClientTimeoutError, OutcomeUnknown
from stoker.proto import limits, messages
from stoker.proto.messages import Message

pytestmark = pytest.mark.timeout(30)

LOOPS = ("asyncio", "trio")


@pytest.fixture
def real_broker(socket_path: str) -> Iterator[str]:
    """Started outside the test's own loop, which must not block."""
    with broker_at(socket_path):
        yield socket_path


def reports(request: Request) -> Message:
    return messages.StatusReport({"connection": request.connection})


async def eventually(condition: Any, what: str) -> None:
    """For tests whose other side is a thread; an event loop must not block."""
    await anyio.to_thread.run_sync(partial(wait_until, condition, what))


async def store(client: AsyncClient, ids: list[str], id: str) -> None:
    ids.append((await client.enqueue("k", id=id)).id)


@pytest.mark.anyio
async def test_tasks_share_one_connection_and_get_their_own_answers(socket_path: str) -> None:
    mixed: list[str] = []

    async def work(client: AsyncClient, name: str) -> None:
        for count in range(10):
            id = f"{name}-{count:03}"
            if (await client.enqueue("k", id=id)).id != id:
                mixed.append(id)

    with ScriptedBroker(socket_path, stores_everything) as broker:
        async with AsyncClient(socket_path) as client, anyio.create_task_group() as group:
            for name in range(20):
                group.start_soon(work, client, str(name))
        assert broker.connection_count == 1
        assert len(broker.requests) == 200
    assert mixed == []


@pytest.mark.anyio
async def test_enqueue_that_was_cancelled_may_be_repeated_with_its_id(real_broker: str) -> None:
    async with AsyncClient(real_broker) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(client.enqueue, "k", [1], id="order-1"))
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        handle = await client.enqueue("k", [1], id="order-1")
        assert (await client.enqueue("k", [1], id="order-1")).number == handle.number


@pytest.mark.anyio
async def test_cancel_at_any_moment_leaves_everybody_else_whole(real_broker: str) -> None:
    """Tasks that are cancelled after more and more turns of the loop, between tasks that are not."""
    ids: list[str] = []

    async def cancelled_after(client: AsyncClient, turns: int) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(client.enqueue, "k", id=f"gone-{turns}"))
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    async with AsyncClient(real_broker) as client, anyio.create_task_group() as group:
        for number in range(60):
            group.start_soon(cancelled_after, client, number)
            group.start_soon(store, client, ids, f"kept-{number}")
    assert sorted(ids) == sorted(f"kept-{number}" for number in range(60))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_cancel_by_the_means_of_asyncio_itself(socket_path: str) -> None:
    replies: list[Any] = [Hang()]
    with ScriptedBroker(socket_path, lambda request: replies.pop() if replies else reports(request)):
        async with AsyncClient(socket_path) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.status(), 0.05)
            answers = await asyncio.gather(*(client.status() for _ in range(3)))
            assert [answer["connection"] for answer in answers] == [1, 1, 1]


@pytest.mark.anyio
async def test_overdue_answer_moves_new_calls_to_a_new_line_and_leaves_old_ones_theirs(
    socket_path: str,
) -> None:
    states: list[str] = []

    def script(request: Request) -> Any:
        if isinstance(request.message, messages.Status):
            return Hang() if request.connection == 1 else reports(request)
        waited = messages.Waited("a", "done", "ok", "", None, 1)
        return Hang() if request.connection == 1 else waited

    async def wait(client: AsyncClient) -> None:
        states.append((await client.wait("a")).state)

    with ScriptedBroker(socket_path, script) as broker:
        async with AsyncClient(socket_path, timeout_s=0.1) as client, anyio.create_task_group() as group:
            group.start_soon(wait, client)
            await eventually(lambda: broker.requests, "the wait has arrived")
            with pytest.raises(ClientTimeoutError):
                await client.status()
            assert (await client.status())["connection"] == 2
            assert broker.open_count == 2
            broker.close_connections()
    assert states == ["done"]


@pytest.mark.anyio
async def test_answer_that_has_come_counts_although_time_is_up(socket_path: str) -> None:
    """As for whoever was stopped meanwhile. It is longer than one read."""
    report = {"text": "x" * (limits.READ_BYTES + 10)}
    asked, found = threading.Event(), list[Any]()

    def answers(_: Request) -> Message:
        asked.set()
        return messages.StatusReport(report)

    async def ask(client: AsyncClient) -> None:
        found.append(await client.status())

    with ScriptedBroker(socket_path, answers):
        async with AsyncClient(socket_path, timeout_s=0.3) as client:
            await client.status()
            asked.clear()
            async with anyio.create_task_group() as group:
                group.start_soon(ask, client)
                while not asked.is_set():
                    await anyio.lowlevel.checkpoint()
                hold_up(0.5)
    assert found == [report]


def hold_up(seconds: float) -> None:
    """Nobody else of this loop has a turn meanwhile."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


@pytest.mark.anyio
async def test_lost_line_is_judged_for_each_request_on_it(socket_path: str) -> None:
    def script(request: Request) -> Any:
        if request.connection > 1:
            return stores_everything(request)
        return Close() if isinstance(request.message, messages.Kick) else Hang()

    ids: list[str] = []
    with ScriptedBroker(socket_path, script) as broker:
        async with AsyncClient(socket_path) as client, anyio.create_task_group() as group:
            group.start_soon(store, client, ids, "order-1")
            await eventually(lambda: broker.requests, "the enqueue has arrived")
            with pytest.raises(OutcomeUnknown, match="kick"):
                await client.kick("b")
    assert ids == ["order-1"]


@pytest.mark.anyio
async def test_closed_client_opens_a_new_line_with_its_next_call(socket_path: str) -> None:
    with ScriptedBroker(socket_path, reports) as broker:
        client = AsyncClient(socket_path)
        await client.status()
        await client.aclose()
        await eventually(lambda: broker.open_count == 0, "the line is closed")
        assert (await client.status())["connection"] == 2
        await client.aclose()


@pytest.mark.anyio
async def test_close_lets_a_call_under_way_have_its_answer(socket_path: str) -> None:
    go_on = threading.Event()

    def script(request: Request) -> Message:
        go_on.wait(10)
        return reports(request)

    async def ask(client: AsyncClient, answers: list[Any]) -> None:
        answers.append(await client.status())

    answers: list[Any] = []
    with ScriptedBroker(socket_path, script) as broker:
        client = AsyncClient(socket_path)
        async with anyio.create_task_group() as group:
            group.start_soon(ask, client, answers)
            await eventually(lambda: broker.requests, "the request has arrived")
            await client.aclose()
            go_on.set()
        await eventually(lambda: broker.open_count == 0, "the line is closed")
    assert answers == [{"connection": 1}]


@pytest.mark.parametrize("backend", LOOPS)
def test_loop_that_ends_takes_its_line_along_and_the_next_has_its_own(socket_path: str, backend: str) -> None:
    with ScriptedBroker(socket_path, reports) as broker:
        client = AsyncClient(socket_path)
        for number in (1, 2):
            assert anyio.run(client.status, backend=backend) == {"connection": number}
            gc.collect()  # Trio's own objects refer to each other in circles
            wait_until(lambda: broker.open_count == 0, "the line of the loop that ended is closed")


@pytest.mark.parametrize("backend", LOOPS)
def test_client_remembers_in_a_new_loop_that_the_broker_was_there(socket_path: str, backend: str) -> None:
    client = AsyncClient(socket_path, retry_s=10)

    async def status() -> Any:
        async with client:
            return await client.status()

    with pytest.raises(BrokerUnreachableError):
        anyio.run(status, backend=backend)
    with ScriptedBroker(socket_path, reports):
        anyio.run(status, backend=backend)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(anyio.run(status, backend=backend)))
    thread.start()
    with ScriptedBroker(socket_path, reports):
        thread.join(10)
    assert len(answers) == 1


@pytest.mark.slow
def test_loops_in_several_threads_never_share_a_line(socket_path: str) -> None:
    ids: list[str] = []
    client = AsyncClient(socket_path)

    async def work(name: int) -> None:
        for count in range(100):
            await store(client, ids, f"{name}-{count:03}")
        await client.aclose()

    def run(name: int) -> None:
        anyio.run(work, name, backend=LOOPS[name % 2])

    with ScriptedBroker(socket_path, stores_everything) as broker:
        threads = [threading.Thread(target=run, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        senders = {(r.connection, r.message.id.split("-")[0]) for r in broker.requests}
    assert len(ids) == len(set(ids)) == 600
    assert len(senders) == broker.connection_count == 6


@pytest.mark.slow
def test_forked_child_opens_its_own_line_and_closes_its_copy_of_the_parents(socket_path: str) -> None:
    stay, leave = os.pipe()

    async def parent(client: AsyncClient) -> int:
        await client.enqueue("k", id="p-1")
        child = forked(lambda: asyncio.run(_enqueue_and_stay(client, stay, leave)))
        await eventually(lambda: len(broker.requests) == 2, "the child has enqueued")
        await client.enqueue("k", id="p-2")
        await client.aclose()
        await eventually(lambda: broker.open_count == 1, "the parent's line is closed, the child's is not")
        os.write(leave, b"x")
        return await anyio.to_thread.run_sync(lambda: os.waitpid(child, 0)[1])

    with ScriptedBroker(socket_path, stores_everything) as broker:
        assert asyncio.run(parent(AsyncClient(socket_path))) == 0
        connections = [(r.connection, r.message.id) for r in broker.requests]
    os.close(stay)
    os.close(leave)
    assert connections == [(1, "p-1"), (2, "c-1"), (1, "p-2")]


async def _enqueue_and_stay(client: AsyncClient, stay: int, leave: int) -> bool:
    os.close(leave)  # so that it ends with its parent, whatever becomes of the test
    stored = await client.enqueue("k", id="c-1")
    return os.read(stay, 1) == b"x" and stored.id == "c-1"
