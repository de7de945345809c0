"""The supervisor's connection to the broker: `pool`, heartbeats, `exited`, and `kill` and `recall` pushed to it.

It reconnects for ever. An `exited` report is kept until the broker has answered it, and repeated after
every reconnect: only then may the broker hand out what the dead worker held. Until then the worker is
also still listed in `pool`, so that nothing of it is freed on the mere word that it no longer lives.

`pool` is the first message of each connection, and is said again on it when something of it has changed; the
answer to the newest one counts.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import trio

from ..proto import codec, limits, work
from ..proto.errors import RemoteProtocolError
from ..proto.frames import FrameReader
from ..proto.messages import ANSWER, ERROR, Message, Welcome

BACKOFF_S_MIN = 0.02
BACKOFF_S_MAX = 1.0

ANSWER_S = 10.0
"""A broker that has not answered `pool` by then is tried anew."""

_KILL = work.OPS[work.Kill][0]
_RECALL = work.OPS[work.Recall][0]

_FATAL = frozenset({"forbidden", "version_mismatch", "bad_message", "unknown_op"})
"""Refusals of `pool` that another try would get again."""

_FULL = frozenset({"pools_full", "kinds_full"})
"""Those after which there is room some day: when another pool ends, or kinds are forgotten."""

FULL_S = 5.0
"""How long to wait for that before the next try, which comes with all kinds again."""


class PoolRefusedError(Exception):
    """The broker will not have this pool."""


class Declared:
    """A `pool` whose answer is waited for."""

    def __init__(self) -> None:
        self.known = trio.Event()
        self.error: PoolRefusedError | None = None


class Owner(Protocol):
    """What the link needs of the supervisor."""

    def pool_message(self) -> work.Pool:
        """Who this pool is, with the nonces of its live workers."""
        ...

    def nonces_seen_alive(self) -> list[str]:
        """The workers that a heartbeat may speak for, looked at now."""
        ...

    def welcomed(self) -> None:
        """The broker knows the pool now."""
        ...

    def kill_wanted(self, kill: work.Kill) -> None:
        """The broker wants an attempt ended."""
        ...

    def recall_wanted(self, recall: work.Recall) -> work.Recalled | None:
        """The broker wants back what has not begun; None if there is no such worker."""
        ...


class PoolLink:
    """See the module."""

    def __init__(self, path: str, owner: Owner, say: Callable[..., None]) -> None:
        self._path = path
        self._owner = owner
        self._say = say
        self._number = 0
        self._outgoing: trio.MemorySendChannel[bytes] | None = None
        self._unconfirmed: dict[str, work.Exited] = {}
        self._asked: dict[int, str] = {}
        self._hello = 0
        self._beat_number = 0
        self._heartbeat_ms = limits.HEARTBEAT_MS_MAX
        self._settled = trio.Event()
        self._welcomed = trio.Event()
        self._declared: Declared | None = None
        """What somebody waits for."""
        self._is_away = False
        self._scope = trio.CancelScope()
        self._refused: PoolRefusedError | None = None
        self._refusal_said = ""
        """The code word that every try gets since the last welcome: said once."""

    @property
    def unconfirmed(self) -> Sequence[str]:
        """Nonces of workers whose end the broker has not acknowledged."""
        return list(self._unconfirmed)

    def tell(self) -> None:
        """Say `pool` anew, because what it says has changed. A connection that is made later begins with it."""
        if self._outgoing is not None:
            self._hello = self._send(self._owner.pool_message())

    async def declare(self) -> None:
        """The same, and return when the broker has taken it; PoolRefusedError if it will not."""
        # Whoever waited for an earlier one is told as well: what they had to say is no longer so.
        self._know_declared(None)
        declared = self._declared = Declared()
        self.tell()
        await declared.known.wait()
        if declared.error is not None:
            raise declared.error

    def report(self, exited: work.Exited) -> None:
        """Tell the broker now, and again until it has answered."""
        if not self._unconfirmed:
            self._settled = trio.Event()
        self._unconfirmed[exited.worker] = exited
        if self._welcomed.is_set():
            self._send_report(exited)

    async def wait_settled(self) -> None:
        """Return when every report has been answered."""
        while self._unconfirmed:
            await self._settled.wait()

    async def run(self) -> None:
        """Connect, converse, and begin again. PoolRefusedError if the broker will not have the pool."""
        backoff_s = BACKOFF_S_MIN
        while True:
            try:
                stream = await trio.open_unix_socket(self._path)
            except OSError as error:
                self._say_away(error)
                await trio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)
                continue
            async with stream:
                await self._converse(stream)
            if self._refused is not None:
                # Raised here, outside of the conversation's nursery, which would wrap it in a group.
                raise self._refused
            if self._welcomed.is_set():
                backoff_s = BACKOFF_S_MIN
            self._welcomed = trio.Event()
            self._outgoing = None
            await trio.sleep(FULL_S if self._refusal_said in _FULL else backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)

    def _say_away(self, error: OSError) -> None:
        if not self._is_away:
            self._is_away = True
            self._say("broker_away", socket=self._path, error=error.strerror or error)

    async def _converse(self, stream: trio.SocketStream) -> None:
        self._outgoing, outgoing = trio.open_memory_channel[bytes](math.inf)
        self._welcomed = trio.Event()
        self._asked.clear()
        self._hello = self._send(self._owner.pool_message())
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            nursery.start_soon(self._write, stream, outgoing, nursery.cancel_scope)
            nursery.start_soon(self._beat)
            await self._read(stream)
            nursery.cancel_scope.cancel()

    # --- sending -------------------------------------------------------------------------------------

    def _send(self, message: Message) -> int:
        self._number += 1
        if self._outgoing is not None:
            op = work.OPS[type(message)][0]
            self._outgoing.send_nowait(codec.encode([op, self._number, *message]))
        return self._number

    def _send_report(self, exited: work.Exited) -> None:
        self._asked[self._send(exited)] = exited.worker

    async def _write(
        self, stream: trio.SocketStream, outgoing: trio.MemoryReceiveChannel[bytes], scope: trio.CancelScope
    ) -> None:
        async for data in outgoing:
            try:
                await stream.send_all(data)
            except trio.BrokenResourceError:
                scope.cancel()
                return

    async def _beat(self) -> None:
        await self._welcomed.wait()
        while True:
            self._beat_number = self._send(work.Heartbeat([], self._owner.nonces_seen_alive()))
            await trio.sleep(self._heartbeat_ms / 1000)

    # --- receiving -----------------------------------------------------------------------------------

    async def _read(self, stream: trio.SocketStream) -> None:
        reader = FrameReader()
        answer_by = trio.current_time() + ANSWER_S
        while True:
            data = b""
            with trio.move_on_at(math.inf if self._welcomed.is_set() else answer_by):
                try:
                    data = await stream.receive_some(limits.READ_BYTES)
                except trio.BrokenResourceError:
                    return
            if not data:
                return
            try:
                reader.feed(data)
                while (body := reader.next_frame()) is not None:
                    self._take(codec.decode(body))
            except (RemoteProtocolError, TypeError, ValueError) as error:
                self._say("broker_link_broken", error=error)
                return

    def _take(self, fields: list[Any]) -> None:
        op, number = fields[0], fields[1]
        if op == _KILL:
            self._owner.kill_wanted(work.Kill(*fields[2 : 2 + len(work.Kill._fields)]))
        elif op == _RECALL:
            recalled = self._owner.recall_wanted(work.Recall(*fields[2 : 2 + len(work.Recall._fields)]))
            if recalled is not None:
                # Not repeated: what is recalled is given back by the worker too, when it comes to it.
                self._send(recalled)
        elif number == self._hello and op == ANSWER:
            self._know_declared(None)
            if not self._welcomed.is_set():
                self._take_welcome(Welcome(*fields[2 : 2 + len(Welcome._fields)]))
        elif number in (self._hello, 0) and op == ERROR:
            self._take_refusal(number, fields[2], fields[3])
        elif (nonce := self._asked.pop(number, None)) is not None:
            self._take_confirmation(nonce, fields)
        elif op == ANSWER and number == self._beat_number:
            # The other wishes are for workers without a supervisor: this pool outlives the broker.
            wishes = work.Wishes(*fields[2 : 2 + len(work.Wishes._fields)])
            self._heartbeat_ms = wishes.heartbeat_ms or self._heartbeat_ms

    def _take_welcome(self, welcome: Welcome) -> None:
        self._heartbeat_ms = welcome.heartbeat_ms
        self._welcomed.set()
        self._is_away, self._refusal_said = False, ""
        for exited in list(self._unconfirmed.values()):
            self._send_report(exited)
        self._owner.welcomed()

    def _know_declared(self, error: PoolRefusedError | None) -> bool:
        """Tell who waits for it; whether anybody did."""
        declared, self._declared = self._declared, None
        if declared is not None:
            declared.error = error
            declared.known.set()
        return declared is not None

    def _take_refusal(self, number: int, code: str, message: str) -> None:
        is_final = code in _FATAL and (number == self._hello or not self._welcomed.is_set())
        if is_final or code == "kinds_full":
            error = PoolRefusedError(f"{code}: {message}")
            # Who waits for it has something else to say; if nobody does, there is nothing else.
            if not self._know_declared(error) and is_final:
                self._refused = error
                self._scope.cancel()
        if self._welcomed.is_set():
            self._say("broker_refused", code=code, message=message)
        elif code != self._refusal_said:
            self._refusal_said = code
            self._say("broker_refused", code=code, message=message)

    def _take_confirmation(self, nonce: str, fields: list[Any]) -> None:
        if fields[0] == ERROR:
            # Asking again would get the same answer; the broker's own look at the process remains.
            self._say("report_refused", worker=nonce, code=fields[2], message=fields[3])
        self._unconfirmed.pop(nonce, None)
        if not self._unconfirmed:
            self._settled.set()
