"""`aenqueue` of a handler, under asyncio and Trio: the same job as by `enqueue`, in a program with a loop."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.scripted_broker import ScriptedBroker, stores_everything

from stoker import App, AsyncJobHandle
from stoker.client.values import encode_arguments
from stoker.proto import messages

pytestmark = pytest.mark.anyio

Aenqueue = Callable[[str, dict[str, str]], Coroutine[Any, Any, AsyncJobHandle]]


def app_at(path: str) -> App:
    app = App(socket=path)

    @app.job
    def add(a: int, b: int = 0) -> int:
        return a + b

    assert app.handlers["add"] is add
    return app


async def test_handler_stores_a_job_with_its_arguments(socket_path: str) -> None:
    with ScriptedBroker(socket_path, stores_everything) as broker:
        app = app_at(socket_path)
        handle = await app.handlers["add"].aenqueue(1, b=2)
        await app.async_client.aclose()
        (sent,) = broker.messages(messages.Enqueue)
    assert isinstance(handle, AsyncJobHandle)
    assert (sent.id, sent.kind, sent.payload) == (handle.id, "add", encode_arguments([1], {"b": 2}))


async def test_options_of_using_go_along(socket_path: str) -> None:
    with ScriptedBroker(socket_path, stores_everything) as broker:
        app = app_at(socket_path)
        await app.handlers["add"].using(id="order-1", delay_s=60, priority=5).aenqueue(1)
        await app.async_client.aclose()
        (sent,) = broker.messages(messages.Enqueue)
    assert (sent.id, sent.delay_ms, sent.priority) == ("order-1", 60_000, 5)


async def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent() -> None:
    add = app_at("/nowhere/at/all.sock").handlers["add"]
    for call in (add.aenqueue, add.using(delay_s=1).aenqueue):
        with pytest.raises(TypeError, match="'a'"):
            await call()


async def test_all_jobs_of_an_app_go_over_one_connection(socket_path: str) -> None:
    with ScriptedBroker(socket_path, stores_everything) as broker:
        app = app_at(socket_path)
        for number in range(3):
            await app.handlers["add"].aenqueue(number)
        await app.async_client.aclose()
        assert broker.connection_count == 1


async def test_types_of_the_function_are_those_of_aenqueue() -> None:
    app = App()

    @app.job
    def send(url: str, body: dict[str, str]) -> int:
        return len(url) + len(body)

    enqueue: Aenqueue = send.aenqueue
    delayed: Aenqueue = send.using(delay_s=1).aenqueue
    assert callable(enqueue) and callable(delayed)
