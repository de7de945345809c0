"""Handlers for tests of results: each ends in one of the ways that an application can hear of."""

import time

from stoker import App, Permanent
from stoker.proto import limits

app = App()


@app.job()
def echo(value: object) -> object:
    """Give back what came."""
    return value


@app.job()
def too_large() -> str:
    """A result over the limit."""
    return "x" * (limits.RESULT_BYTES_MAX + 1)


@app.job()
def unfit() -> object:
    """A result that cannot travel."""
    return {"seen": {1, 2}}


@app.job()
def refuse() -> None:
    """End for good."""
    raise Permanent("no such customer")


@app.job(attempts_max=1)
def fail() -> None:
    """Fail, and have no attempt left."""
    raise ValueError("on purpose")


@app.job()
def sleep(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "slept"
