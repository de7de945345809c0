"""Jobs that come and go at a steady rate: one thread enqueues, one works, as quickly as the broker lets them."""

import threading
import time
from itertools import count, islice
from types import TracebackType
from typing import Self

from support.faults.timed_worker import TimedWorker

from stoker import Client, JobSpec
from stoker.proto import work

SLOTS = 64
BATCH = 100


class Churner:
    """Use as a context manager. Ends with what was enqueued worked off."""

    def __init__(self, path: str, per_second: int) -> None:
        self._path = path
        self._every_s = BATCH / per_second
        self._ends = threading.Event()
        self._is_dry = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._enqueue, self._work)]
        self.enqueued = self.done = 0
        self.errors: list[BaseException] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _enqueue(self) -> None:
        try:
            with Client(self._path) as client:
                specs = (JobSpec("churn", payload=bytes(2000), id=f"churn-{n}") for n in count())
                due_s = time.monotonic()
                while not self._ends.wait(max(due_s - time.monotonic(), 0)):
                    self.enqueued += len(client.enqueue_many(islice(specs, BATCH)))
                    due_s += self._every_s
        except BaseException as error:  # noqa: BLE001  whoever looks at the churner has to be told
            self.errors.append(error)
        finally:
            self._is_dry.set()

    def _work(self) -> None:
        try:
            with TimedWorker(self._path, ["churn"], SLOTS) as worker:
                while not (self._is_dry.is_set() and self.done == self.enqueued):
                    came = worker.wait(0.2)
                    if came is not None:
                        worker.tell(work.Ack(came.job.token, b"result"))
                        self.done += 1
        except BaseException as error:  # noqa: BLE001  as above
            self.errors.append(error)
