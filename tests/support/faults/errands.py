"""A client process for the fault harnesses: enqueues, repeats itself, waits, and notes all of it.

What it is about to ask and what it was answered is in its notebook, so that the client that takes its place
after a SIGKILL asks again for whatever has no answer, under the same ids. Ids are its own or the library's.
Now and then it repeats an id that was answered, with the same body or with another.

It goes on until the file CALM is there, then sees that everything has its answer, and ends with 0.
"""

import json
import random
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from support.waiting import wait_until

from stoker import BrokerUnreachableError, Client, ConflictError, JobSpec, RefusedError
from stoker.proto.model import FINAL_STATES

from .notebook import Notebook

CALM = "calm"

PATIENCE_S = 120.0
"""Far longer than any restart takes: whoever gives up has found a fault."""

GLANCE_S = 0.05
BATCH_MAX = 4

Body = tuple[str, tuple[Any, ...]]
"""Kind and arguments. As the bodies of one client differ in nothing else, it stands for the whole."""


class Plan(NamedTuple):
    """What a client does. The kinds are of `apps/marking.py`, each with its weight."""

    pause_ms: int = 40
    kinds: tuple[tuple[str, int], ...] = (
        ("work", 60),
        ("stumble", 10),
        ("fail", 4),
        ("tree", 3),
        ("linger", 1),
        ("apart", 5),
    )
    work_ms_max: int = 20


class Errands:
    """One life of a client."""

    def __init__(self, directory: Path, socket: str, name: str, life: str, seed: str, plan: Plan) -> None:
        self._calm = directory / CALM
        self._notebook = Notebook(directory / f"client-{name}")
        self._client = Client(socket, timeout_s=PATIENCE_S, retry_s=PATIENCE_S)
        self._random = random.Random(seed)
        self._life = life
        self._plan = plan
        self._made = 0
        self._known: list[tuple[str, Body]] = []

    def run(self) -> None:
        """Until there is nothing more to ask."""
        wait_until(self._is_connected, "a broker", deadline_s=PATIENCE_S)
        self._resume()
        while not self._calm.exists():
            self._step()
            time.sleep(self._random.uniform(0, 2 * self._plan.pause_ms / 1000))
        self._client.close()

    def _is_connected(self) -> bool:
        """A client that never was takes an absent broker at its word."""
        try:
            return bool(self._client.status())
        except BrokerUnreachableError:
            return False

    def _resume(self) -> None:
        """Ask again for what an earlier life asked and was not answered."""
        open_asks: dict[str, Body] = {}
        for note in self._notebook.notes():
            if note.word == "asked":
                open_asks[note.values[0]] = note.values[1]
            elif note.word == "answered":
                open_asks.pop(note.values[0], None)
        for id, body in open_asks.items():
            self._ask(id, body)

    def _step(self) -> None:
        chance = self._random.random()
        if chance < 0.55 or not self._known:
            self._made += 1
            self._ask(f"{self._life}-{self._made}", self._new_body())
        elif chance < 0.75:
            self._ask_many([self._new_body() for _ in range(self._random.randint(1, BATCH_MAX))])
        elif chance < 0.85:
            self._ask_again()
        else:
            self._look(self._random.choice(self._known)[0])

    def _new_body(self) -> Body:
        kinds, weights = zip(*self._plan.kinds, strict=True)
        ms = self._random.randint(0, self._plan.work_ms_max)
        return self._random.choices(kinds, weights)[0], (ms, self._random.getrandbits(40))

    def _ask(self, id: str, body: Body) -> None:
        """Enqueue under an id of its own, or one that was made before."""
        self._notebook.note("asked", id, body)
        self._answer(id, body)

    def _answer(self, id: str, body: Body) -> None:
        kind, arguments = body
        try:
            job = self._client.enqueue(kind, arguments, id=id)
        except RefusedError as error:
            self._notebook.note("answered", id, body, False, None, error.code)
            if not isinstance(error, ConflictError):
                raise
        else:
            self._notebook.note("answered", id, body, False, job.number, "")
            self._known.append((id, body))
            del self._known[:-50]

    def _ask_many(self, bodies: list[Body]) -> None:
        """Enqueue under ids of the library's, all on their way at once."""
        specs = [JobSpec(kind, arguments) for kind, arguments in bodies]
        for spec, body in zip(specs, bodies, strict=True):
            self._notebook.note("asked", spec.message.id, body)
        handles = self._client.enqueue_many(specs)
        for handle, body in zip(handles, bodies, strict=True):
            self._notebook.note("answered", handle.id, body, True, handle.number, "")
            self._known.append((handle.id, body))

    def _ask_again(self) -> None:
        id, (kind, arguments) = self._random.choice(self._known)
        changed = self._random.random() < 0.5
        self._answer(id, (kind, (*arguments[:-1], -1)) if changed else (kind, arguments))

    def _look(self, id: str) -> None:
        outcome = self._client.wait(id, timeout_s=GLANCE_S)
        if outcome.state in FINAL_STATES:
            self._notebook.note("told", id, outcome.state)


def main() -> None:
    """Arguments: directory, socket, name of the client and of this life, seed, plan."""
    directory, socket, name, life, seed, plan = sys.argv[1:]
    pause_ms, kinds, work_ms_max = json.loads(plan)
    chosen = Plan(pause_ms, tuple((kind, weight) for kind, weight in kinds), work_ms_max)
    Errands(Path(directory), socket, name, life, seed, chosen).run()
