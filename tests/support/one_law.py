"""The one law, for one message: nobody hears anything that follows from it before that is on disk.

A `Scene` is a broker with a worker, its supervisor and clients, on a disk that a test lets go piece by
piece. A `Case` is what is said there. While anything is in flight, or decided and not handed over, none
of the peers may have heard a word; when all is stored the answer must be there.

There is no waiting for silence: broker and test share one thread, and a bystander is answered (`help`,
which touches nothing) in the round in which everything said before him was worked off, or a later one.
"""

from collections.abc import Sequence
from typing import Any

import attrs
import trio
from support.core_builders import fresh_id
from support.shell import Shell
from support.wire_peer import DEADLINE_S, WirePeer

from stoker.broker.core.rules import Rules
from stoker.proto import limits, work
from stoker.proto.messages import ANSWER, Cancel, Enqueue, Hello, Help
from stoker.proto.queuerules import QueueRules

TICKET = bytes(range(16))
RULES = Rules(queues={"small": QueueRules(jobs_max=1)}, ids_kept_max=1)


def identity(nonce: str) -> list[Any]:
    return ["boot-id-1", 4026531836, 1, 1, nonce]


def enqueue(id: str, kind: str = "send", payload: bytes = b"", **fields: Any) -> Enqueue:
    return Enqueue(id, kind, payload, **fields)


WORKER = Hello(1, "work", "w", identity("worker-01"), TICKET, ["send"], 2)
POOL = work.Pool(1, "pool", TICKET, identity("supervisor"), [{"kind": "send"}], ["worker-01"])

Saying = tuple[str, Any]
"""Who says which message: client, other, worker, again (the worker on a new connection), supervisor."""


@attrs.frozen
class Case:
    """`message` is said by `who`, and answered, or refused with a code word, when all of it is stored.

    In it, an empty token becomes that of the running attempt; of ids that are fresh there are as many as digits.
    """

    who: str
    message: Any
    says: str | int = ANSWER
    """The code word of the refusal that it gets."""
    before: Sequence[Saying] = ()
    """Said earlier and not answered until it is said."""
    unstored: Sequence[Saying] = ()
    """Said just before by somebody else, so that it is decided and not on disk when the message comes."""
    visits: int = 0
    """So many visits to the journal does it take until that is decided."""
    hung_up: bool = False
    """The worker's connection has ended before."""
    pushes: tuple[str, type[Any]] | None = None
    """Who gets what without having asked for it."""
    from_disk: bool = False
    """Its answer is made of what is read behind all that was decided: there is no way for it to be early."""


class Scene:
    """See the module. Four jobs: `leased` runs on the worker, `ready` waits for an unknown kind, `dead` and
    `cancelled` have ended."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.peers: dict[str, WirePeer] = {}
        self.token: Any = None
        self.wall_ms = 0

    async def prepare(self) -> None:
        # Late enough for ids to be believed fresh, so that those need no look-up.
        self.shell.clock.ahead_ms += 2 * limits.FRESH_MS
        self.wall_ms = self.shell.clock().wall_ms
        for name in ("bystander", "client", "other", "supervisor", "worker", "again"):
            self.peers[name] = await self.shell.connect()
        await self._ask("supervisor", POOL)
        await self._ask("worker", WORKER)
        for message in (enqueue("cancelled", "unknown"), Cancel("cancelled"), enqueue("ready", "unknown")):
            await self._ask("client", message)
        await self._lease("dead")
        await self._ask("worker", work.Nack([], "permanent", "no"))
        await self._lease("leased")

    async def _lease(self, id: str) -> None:
        await self._ask("client", enqueue(id))
        self.token = (await self.peers["worker"].receive())[2]

    async def _ask(self, who: str, message: Any) -> None:
        answer = await self.peers[who].ask(self._filled(message))
        assert answer[0] == ANSWER, answer

    async def say(self, who: str, message: Any) -> int:
        """Say it, and have it worked off as far as that goes without the disk."""
        number = await self.peers[who].say(self._filled(message))
        await self.peers["bystander"].ask(Help())
        return number

    def _filled(self, message: Any) -> Any:
        if isinstance(message, Enqueue) and message.fresh:
            return message._replace(id=fresh_id(self.wall_ms, int(message.id)))
        if getattr(message, "tokens", None) == [[]]:
            return message._replace(tokens=[self.token])
        return message._replace(token=self.token) if getattr(message, "token", None) == [] else message

    async def hang_up(self, who: str) -> None:
        self.peers.pop(who).close()
        with trio.fail_after(DEADLINE_S):
            while not any("disconnected" in line for line in self.shell.lines):
                await self.peers["bystander"].ask(Help())

    async def play(self, case: Case) -> None:
        """Say all of the case; AssertionError if anybody hears anything too early."""
        if case.hung_up:
            await self.hang_up("worker")
        for who, message in case.before:
            await self.say(who, message)
        # What gathers does so for as long as the test wants it to.
        self.shell.clock.stop()
        self.shell.runner.held = True
        for who, message in case.unstored:
            await self.say(who, message)
        for _ in range(case.visits):
            await self._visit()
        assert self._is_decided or not case.unstored
        number = await self.say(case.who, case.message)
        await self._until_stored({who for who, _ in case.unstored} - {case.who})
        await self._check_answer(case, number)

    @property
    def _is_decided(self) -> bool:
        """Something is not on disk, or is still to be looked up there."""
        return not self.shell.driver.committer.is_idle

    async def _visit(self) -> None:
        self.shell.clock.ahead_ms += 1
        self.shell.runner.let_one_go()
        await self.peers["bystander"].ask(Help())

    async def _until_stored(self, answered: set[str]) -> None:
        """One visit to the journal after the other; whose change is stored first may be answered first."""
        silent = dict(self.peers)
        with trio.fail_after(DEADLINE_S):
            while self._is_decided:
                early = [who for who, peer in silent.items() if peer.has_word]
                assert not early, f"{', '.join(early)} heard of what is not on disk"
                await self._visit()
                for who in answered:
                    silent.pop(who, None)

    async def _check_answer(self, case: Case, number: int) -> None:
        self.shell.runner.let_go()
        peer = self.peers[case.who]
        while (answer := await peer.receive())[1] != number:
            continue
        assert case.says in (answer[0], answer[2] if len(answer) > 2 else None), answer
        if case.pushes is not None:
            who, message = case.pushes
            while (await self.peers[who].receive())[0] != work.OPS[message][0]:
                continue
