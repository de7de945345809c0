"""Handlers that fail in ways which are hard to tell, or that cannot work at all."""

import asyncio
import importlib
import os
from collections.abc import Callable

import trio

from stoker import App

app = App()


class RaisingText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class TwoArguments(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)
        self.two = two


def chain() -> BaseException:
    error: BaseException = ValueError("innermost")
    for number in range(2000):
        outer = ValueError(f"cause {number}")
        outer.__cause__ = error
        error = outer
    return error


def circle() -> BaseException:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


AWKWARD: dict[str, Callable[[], BaseException]] = {
    "text raises": RaisingText,
    "two arguments": lambda: TwoArguments("one", "two"),
    "20 MB": lambda: ValueError("x" * 20_000_000),
    "surrogate and NUL": lambda: ValueError("a\ud800b\0c"),
    "2000 causes": chain,
    "circle": circle,
}


@app.job(attempts_max=1)
def fail(how: str) -> None:
    raise AWKWARD[how]()


@app.job
def pid() -> int:
    return os.getpid()


class Odd(BaseException):
    """Of no class that anybody catches by accident."""


ODD: dict[str, BaseException] = {
    "exit 0": SystemExit(0),
    "exit x": SystemExit("x"),
    "interrupt": KeyboardInterrupt(),
    "odd": Odd(),
    "generator": GeneratorExit(),
    "memory": MemoryError(),
    "end of iteration": StopAsyncIteration(),
    "group": BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError()]),
}


@app.job(attempts_max=1)
async def trio_raise(how: str) -> None:
    await trio.lowlevel.checkpoint()
    raise ODD[how]


@app.job(attempts_max=1, loop="asyncio")
async def asyncio_raise(how: str) -> None:
    await asyncio.sleep(0)
    raise ODD[how]


@app.job
async def trio_pid() -> int:
    return os.getpid()


@app.job(loop="asyncio")
async def asyncio_pid() -> int:
    return os.getpid()


@app.job
def need_what_was_forgotten() -> None:
    importlib.import_module("module_that_was_not_deployed")
