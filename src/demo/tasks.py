"""The handlers of the demo, written as a user would write them: `stoker up stoker.demo.tasks:app`.

`digest_of` is also what the demo itself computes to check every answer.
"""

import hashlib
import os

from .. import App

app = App()

PLANNED_FAILURES = 2


class PlannedFailure(Exception):
    """Raised on purpose, to show a retry."""


def digest_of(path: str) -> tuple[str, int]:
    """SHA-256 and number of lines of a file; a last line without a newline counts."""
    with open(path, "rb") as file:
        data = file.read()
    return hashlib.sha256(data).hexdigest(), data.count(b"\n") + (data[-1:] not in (b"", b"\n"))


@app.job(queue="demo")
def digest(path: str) -> tuple[str, int]:
    return digest_of(path)


@app.job(queue="demo", backoff_s=0.1)
def digest_after_failures(path: str, tally: str) -> tuple[str, int]:
    """Fails until the file `tally` has two bytes, and adds one each time.

    A file and not the number of the attempt, because an attempt that a kill ends is not one of the
    planned failures.
    """
    descriptor = os.open(tally, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size < PLANNED_FAILURES:
            os.write(descriptor, b"x")
            raise PlannedFailure("this one is meant to fail twice")
    finally:
        os.close(descriptor)
    return digest_of(path)
