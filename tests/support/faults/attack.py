"""A hostile crowd and one honest client, on real connections to one broker.

The crowd comes in groups: a dozen connections at once, each with a conversation of its own. Meanwhile an
honest client on a connection of its own enqueues, looks, cancels and drops a job, and must find at each
step exactly what it left. Who judges what the broker is (its memory, its descriptors) is not here.
"""

import array
import errno
import os
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import trio
from support.faults import hostile_bytes
from support.faults.conversation import Conversation
from support.faults.hostile_bytes import Frames
from support.faults.hostile_lines import Lines
from support.faults.misfits import introduction
from support.faults.specimen import RIGHT, Specimen
from support.wire_peer import WirePeer

from stoker.proto.messages import ANSWER, Cancel, Drop, Enqueue, Show
from stoker.proto.model import Role
from stoker.proto.ops import BY_MESSAGE

GROUP = 12
POOL = 600
"""Specimens of each kind that are made at once and then combined at random."""

POOL_GROUPS = 60
LONGEST = 60
FRAMES_IN_GROUP = GROUP * LONGEST // 2
"""On average."""

FATAL_SHARE, UNKNOWN_SHARE = 0.45, 0.30
"""Of conversations: so many end by what ends a connection, so many by what cannot be judged."""

DEADLINE_S = 10.0

Tick = Callable[[], Awaitable[None]]
"""Lets the broker work for a moment."""


class Attacker:
    """One hostile connection: sends its chunks one a tick, reads to the end."""

    def __init__(self, path: str, conversation: Conversation, rng: random.Random) -> None:
        self.conversation = conversation
        self.heard = bytearray()
        self.is_over = False
        self._chunks = conversation.chunks(rng)
        self._passes_descriptors = rng.random() < 0.05
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setblocking(False)
        self._socket.connect(path)

    def act(self) -> None:
        """Send what can be sent and read what is there."""
        if self._chunks:
            self._send()
        self._read()

    def _send(self) -> None:
        data = self._chunks[0]
        try:
            sent = self._pass_descriptor(data) if self._passes_descriptors else self._socket.send(data)
        except BlockingIOError:
            return
        except OSError:
            # It has been hung up on, which is its due: what counts is what it was told.
            self._chunks = []
            return
        self._chunks[0] = data[sent:]
        if not self._chunks[0]:
            del self._chunks[0]
        if not self._chunks:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def _pass_descriptor(self, data: bytes) -> int:
        """With a descriptor that nobody asked for. Newer kernels refuse that to the sender."""
        self._passes_descriptors = False
        ancillary = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._socket.fileno()] * 3))
        try:
            return self._socket.sendmsg([data], [ancillary])
        except OSError as error:
            if error.errno != errno.EPERM:
                raise
            return self._socket.send(data)

    def _read(self) -> None:
        while True:
            try:
                data = self._socket.recv(2**18)
            except BlockingIOError:
                return
            except ConnectionResetError:
                # What it had sent was not all read; what it was told before has arrived.
                data = b""
            if not data:
                self.is_over = True
                return
            self.heard += data

    def close(self) -> None:
        self._socket.close()


class Phrases(NamedTuple):
    """What a connection of one role can say."""

    harmless: Sequence[Specimen]
    fatal: Sequence[Specimen]
    unknown: Sequence[Specimen]


class Attack:
    """Groups of attackers, until so many frames were sent."""

    def __init__(self, path: str, rng: random.Random, tick: Tick) -> None:
        self._path = path
        self._rng = rng
        self._tick = tick
        self._groups = 0
        self._honest: WirePeer | None = None
        self._phrases: dict[Role | None, Phrases] = {}
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.on_group: Callable[[list[Attacker]], None] = lambda _: None
        """Told of each group when it is over, for those who measure."""

    async def run(self, frames: int) -> None:
        """Send that many, or stop at the tenth violation."""
        self._honest = await WirePeer.connect(self._path)
        try:
            while self.counts["frames"] < frames and len(self.violations) < 10:
                if self._groups % POOL_GROUPS == 0:
                    self._refill()
                self._groups += 1
                await self._one_group()
        finally:
            self._honest.close()

    def _refill(self) -> None:
        for role in (Role.ADMIN, Role.WORK, Role.SUPERVISE, None):
            maker = Lines(self._rng) if role is None else Frames(self._rng, role)
            unknown = [maker.mutated() for _ in range(POOL)]
            self._phrases[role] = Phrases(maker.harmless(POOL), maker.fatal(POOL // 2), unknown)

    async def _one_group(self) -> None:
        attackers = [Attacker(self._path, self._conversation(), self._rng) for _ in range(GROUP)]
        try:
            for attacker in attackers:
                attacker.act()
            await self._be_honest()
            await self._finish(attackers)
        finally:
            for attacker in attackers:
                attacker.close()
        self._judge(attackers)
        self.on_group(attackers)

    async def _finish(self, attackers: list[Attacker]) -> None:
        with trio.move_on_after(DEADLINE_S):
            while left := [attacker for attacker in attackers if not attacker.is_over]:
                await self._tick()
                for attacker in left:
                    attacker.act()

    def _judge(self, attackers: list[Attacker]) -> None:
        for attacker in attackers:
            talk = attacker.conversation
            self.counts["frames"] += len(talk.specimens)
            self.counts["connections"] += 1
            self.counts["refused"] += sum(not RIGHT & each.verdicts for each in talk.specimens)
            found = talk.faults(bytes(attacker.heard))
            if not attacker.is_over:
                found.append(
                    f"not over after {DEADLINE_S} s: {talk.specimens[-1].name} {talk.data[-200:].hex()}"
                )
            self.violations += [f"group {self._groups}: {fault}" for fault in found]

    # --- what is said ------------------------------------------------------------------------------------------

    def _conversation(self) -> Conversation:
        rng = self._rng
        role = rng.choices((Role.ADMIN, Role.WORK, Role.SUPERVISE, None), (6, 2, 2, 2))[0]
        phrases = self._phrases[role]
        chosen = rng.sample(phrases.harmless, rng.randrange(LONGEST))
        how = rng.random()
        if how < FATAL_SHARE:
            chosen.append(rng.choice(phrases.fatal))
        elif how < FATAL_SHARE + UNKNOWN_SHARE:
            chosen.append(rng.choice(phrases.unknown))
        return Conversation([self._introduction(role), *chosen], is_text=role is None)

    def _introduction(self, role: Role | None) -> Specimen:
        if role is None:
            line = b'{"op": "why", "id": "h-1", "request": 1}\n'
            return Specimen("introduction", line, 1, RIGHT)
        message = introduction(role, self._rng)
        body = hostile_bytes.packed(BY_MESSAGE[type(message)].number, 1, *message)
        return Specimen("introduction", hostile_bytes.framed(body), 1, RIGHT)

    # --- the honest client ------------------------------------------------------------------------------------

    async def _be_honest(self) -> None:
        id, payload = f"honest-{self._groups}", os.urandom(20)
        steps: tuple[tuple[Any, Callable[[list[Any]], bool]], ...] = (
            (Enqueue(id, "honest", payload, queue="honest"), lambda answer: answer[2] == id),
            (Show(id, True), lambda answer: _is_ready(answer[2], payload)),
            (Cancel(id), lambda answer: answer[2:] == [id, "cancelled"]),
            (Drop(id), lambda answer: answer[2] == 1),
        )
        for message, is_right in steps:
            try:
                assert self._honest is not None
                answer = await self._honest.ask(message)
            except (trio.TooSlowError, EOFError, OSError) as error:
                self.violations.append(f"group {self._groups}: honest {type(message).__name__}: {error!r}")
                return
            self.counts["honest"] += 1
            if answer[0] != ANSWER or not is_right(answer):
                self.violations.append(f"group {self._groups}: honest {type(message).__name__}: {answer}")


def _is_ready(job: dict[str, Any], payload: bytes) -> bool:
    return (job["state"], job["queue"], job["payload"]) == ("ready", "honest", payload)
