"""Workers that end in every way, and an import that leaves things behind which are not theirs to tidy up."""

import atexit
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stoker import App, current_job

app = App()

HOME = Path(os.environ.get("LEAVING_HOME", os.devnull))
"""Where the test looks."""

if HOME.is_dir():
    MADE = tempfile.TemporaryDirectory(dir=HOME, prefix="made-at-import-")
    atexit.register(lambda: (HOME / f"exit-handler-{os.getpid()}").touch())
    sys.stdout.write("half a line at import")


@app.job
def nothing() -> None:
    """Nothing at all."""


@app.job(attempts_max=1)
def leave(how: str) -> None:
    if how == "exit":
        sys.exit("leaving")
    os._exit(3)


@app.job
def sleep(mark: str, seconds: float) -> str:
    Path(mark).touch()
    time.sleep(seconds)
    return "slept"


@app.job(attempts_max=1)
def follow_null() -> None:
    ctypes.string_at(0)


@app.job
def hold_everything(marks: str) -> None:
    """Start a program that keeps every descriptor it can get, and stay; the second time only say when."""
    attempt = current_job().attempt
    if attempt == 1:
        subprocess.Popen(["sleep", "600"], close_fds=False)
    (Path(marks) / str(attempt)).write_text(f"{time.monotonic()}\n")
    time.sleep(600 if attempt == 1 else 0)
