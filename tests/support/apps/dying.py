"""Handlers that end their worker, each in another way."""

import os
import signal

from stoker import App

app = App()


@app.job(crashes_max=1)
def die_by(name: str) -> None:
    """By a signal, as a fault in a library or the kernel would."""
    number = signal.Signals[name]
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), number)
    signal.pause()


@app.job(crashes_max=1)
def leave_with(status: int) -> None:
    """Without a word, as a library that calls `exit` would."""
    os._exit(status)


@app.job
def pid() -> int:
    """Of the worker."""
    return os.getpid()
