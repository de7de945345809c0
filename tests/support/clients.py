"""The three clients behind one face, so that one test can be run over each.

    with connected("trio", path, retry_s=0) as client:
        client.enqueue("k").wait()

An `AsyncClient` is driven in an event loop of its own thread, and every method of the face blocks. Calls
from several threads become as many tasks of that one loop.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from inspect import isasyncgenfunction
from typing import Any, cast

from anyio.from_thread import BlockingPortal, start_blocking_portal

from stoker import AsyncClient, AsyncJobHandle, Client
from stoker.proto.codec import is_exactly

KINDS = ("blocking", "asyncio", "trio")

Connect = Callable[..., AbstractContextManager[Client]]
"""Makes a client, with the options of one."""


class _Face:
    """Methods of an asynchronous object, called from outside its loop."""

    def __init__(self, portal: BlockingPortal, inner: Any) -> None:
        self._portal = portal
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return partial(self._call, value) if callable(value) else value

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if isasyncgenfunction(method):
            return self._portal.call(_listed, method, args, kwargs)
        return self._faced(self._portal.call(partial(method, *args, **kwargs)))

    def _faced(self, value: Any) -> Any:
        if is_exactly(value, list):
            return [self._faced(each) for each in value]
        return _Face(self._portal, value) if isinstance(value, AsyncJobHandle) else value


async def _listed(method: Callable[..., Any], args: Any, kwargs: Any) -> list[Any]:
    return [each async for each in method(*args, **kwargs)]


@contextmanager
def connected(kind: str, path: str, **options: Any) -> Generator[Client]:
    """A client of one of `KINDS`."""
    if kind == "blocking":
        with Client(path, **options) as client:
            yield client
        return
    inner = AsyncClient(path, **options)
    with start_blocking_portal(kind) as portal:
        yield cast(Client, _Face(portal, inner))
        portal.call(inner.aclose)
