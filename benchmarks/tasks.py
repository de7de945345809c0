"""The handlers of the benchmarks: as little as a handler can do."""

import time

from stoker import App

app = App()


@app.job(queue="bench")
def no_op(text: str) -> None:
    pass


@app.job(queue="bench")
def start_time(text: str) -> int:
    """When the handler began, on the clock that all processes of the host share."""
    return time.monotonic_ns()
