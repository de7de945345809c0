"""Handlers that print and log, for trials of what becomes of it."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading

import trio

from stoker import App

app = App()
log = logging.getLogger("talking")


@app.on_start
def greet() -> None:
    print("a start hook", flush=True)


@app.job
def talk(lines: int = 1) -> None:
    for number in range(lines):
        print("printed", number)
    print("to stderr", file=sys.stderr)
    log.info("logged")
    thread = threading.Thread(target=lambda: print("from a thread"))
    thread.start()
    thread.join()
    print("unfinished", end="")


@app.job(isolate=True)
def talk_alone() -> None:
    print("printed alone")
    log.info("logged alone")


@app.job
async def talk_side_by_side(count: int) -> None:
    for number in range(count):
        print("part", number, end=" ")
        await trio.sleep(0.001)
        print("whole")
    log.info("logged side by side")


@app.job(loop="asyncio")
async def talk_in_asyncio() -> None:
    await asyncio.to_thread(print, "from a thread of asyncio")


@app.job
def fail() -> None:
    print("before it failed")
    raise ValueError("as asked")


@app.job
def crash() -> None:
    print("before it crashed")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job
def child() -> None:
    subprocess.run(["/bin/echo", "from a program"], check=True)
