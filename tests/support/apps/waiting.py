"""Coroutine handlers for trials, on both loops."""

import asyncio
import os
import signal
import time

import anyio
import trio

from stoker import App, Permanent, current_job

app = App()


@app.job
async def nap(seconds: float) -> str:
    await trio.sleep(seconds)
    return current_job().id


@app.job
async def mark_and_nap(path: str, seconds: float) -> None:
    await anyio.Path(path).touch()
    await trio.sleep(seconds)


@app.job(loop="asyncio")
async def asyncio_nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return current_job().id


@app.job(loop="asyncio")
async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


@app.job
async def fail(permanently: bool = False) -> None:
    await trio.lowlevel.checkpoint()
    raise Permanent("no use") if permanently else ValueError("as asked")


@app.job
async def exit_loop() -> None:
    raise SystemExit(3)


@app.job
async def tidy_up(path: str) -> None:
    try:
        await trio.sleep(60)
    finally:
        with trio.CancelScope(shield=True):
            await anyio.Path(path).write_text("tidied up")


@app.job(loop="asyncio")
async def asyncio_tidy_up(path: str) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.3)
        await anyio.Path(path).write_text("tidied up")


@app.job
async def swallow() -> str:
    for _ in range(1000):
        try:
            await trio.sleep(60)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            return "went on"
    return "never"


@app.job
async def never_end() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(60)


@app.job
async def hold_the_loop(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - the point of it


@app.job
async def kill_worker(path: str) -> None:
    """Only the first time: the file says that there was one."""
    await trio.sleep(0.05)
    if not await anyio.Path(path).exists():
        await anyio.Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@app.job
async def always_kill_worker() -> None:
    await trio.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


@app.job
def plain(value: int) -> int:
    return value + 1
