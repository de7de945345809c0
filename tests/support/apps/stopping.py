"""Handlers that are in the middle of something when everything is told to stop."""

import subprocess
import time
from pathlib import Path

from stoker import App

app = App()


@app.job
def nap(mark: str, seconds: float) -> str:
    """Begin, sleep, return."""
    Path(mark).touch()
    time.sleep(seconds)
    return "slept"


@app.job
def shell(mark: str, seconds: float) -> str:
    """The same in a program."""
    Path(mark).touch()
    command = ["sh", "-c", f"sleep {seconds}; echo done"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
