"""One connection as the broker sees it: bytes in, checked requests out, answers to bytes. No I/O.

Feed it with `receive_data` and `receive_eof`, then call `next_event` until it gives None:

    Request   a legal, checked message: handle it, answer it with `answer` or `refuse`
    Refused   was answered here (a refusal, or `help`): send these bytes, go on
    Ended     send these bytes, which may be empty, then close; nothing more will come

The first byte decides the mode for good: printable means text, anything else frames. The rest is a
machine of few states; `legality.py` has its table:

    new ──── hello, role submit or admin ───► client
     │ ───── any op of a client ────────────► client     (a client need not introduce itself)
     │ ───── hello, role work ──────────────► worker
     │ ───── pool ──────────────────────────► supervisor
     └ ───── help ──────────────────────────► new        (so that a person may ask first)

Nothing leads back: a connection has one job for life, and a role named in `hello` gives up the rest
that the peer's uid would grant. The move happens when the message is read, not when it is answered,
because requests are pipelined: what follows `hello` in the same read belongs to its role.

Two questions are asked of every op, in this order. May the role ever use it? If not: `forbidden`.
Is it legal in this state? If not: `wrong_state`. These, unknown ops and wrong fields cost only the
one request, since the frame was whole. Bytes that are no frame (or no line) end the connection,
because nobody can say where the next one would begin.

The limit of a frame is that of its own op, and before that the largest among the ops legal now: a
worker cannot announce a megabyte, whoever has no role cannot announce more than a control frame.

Deliberately absent: time (the shell has the deadlines for the first byte and for a frame that stays
incomplete), which answer belongs to which request (the core knows), and every rule of the queue.
"""

from typing import Any, NamedTuple

from . import beanstalk, codec, limits, ops, text
from .errors import RemoteProtocolError
from .frames import FrameReader
from .help import HELP_TEXT
from .legality import AFTER, State, legal_ops
from .messages import ANSWER, ERROR, Hello, Help, Message, Refusal, Status
from .model import Role
from .ops import BY_MESSAGE, BY_NAME, BY_NUMBER, Op
from .work import Pool

STATS = -1
"""The request number of beanstalkd's `stats`, whose answer has that protocol's form."""

UNANSWERABLE = 0
"""The request number of an error that belongs to no request."""

END_OF_FILE = "end of file"
"""The reason of an end between two requests: how a peer that has nothing more to say leaves."""


_NEW, _ENDED = State.NEW, State.ENDED
"""By a plain name: looking a member up in its enum is slow before Python 3.12."""


class Request(NamedTuple):
    """A legal, checked message. `number` names it in the answer."""

    number: int
    op: Op
    message: Message


class Refused(NamedTuple):
    """Answered by the connection itself: send `data` and go on."""

    data: bytes


class Ended(NamedTuple):
    """The last event: send `data`, which may be empty, and close. `reason` is for the log."""

    data: bytes
    reason: str


Event = Request | Refused | Ended


class Connection:
    """See the module. `roles` is what the peer's uid grants; empty for a peer that may do nothing."""

    def __init__(self, roles: frozenset[Role]) -> None:
        self.is_text: bool | None = None
        """None until the first byte."""
        self.role: Role | None = None
        """The one that `hello` or `pool` named, None before or without."""
        self._roles = roles
        self._frames = FrameReader()
        self._lines = text.LineReader(0)
        self._is_eof = False
        self._enter(State.NEW)

    # --- bytes in ------------------------------------------------------------------------------------

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes as they came. Nothing is read from them before `next_event`, nothing kept after the end."""
        if self.state is _ENDED:
            return
        if self.is_text is None and len(data) > 0:
            self.is_text = text.is_text(data[0])
        if self.is_text:
            self._lines.feed(data)
        else:
            self._frames.feed(data)

    def receive_eof(self) -> None:
        """The peer will send no more. What it sent before still counts, as far as it is whole."""
        self._is_eof = True

    def abandon(self) -> None:
        """Nothing of what has come and may still come counts any more."""
        self._enter(State.ENDED)

    @property
    def incomplete(self) -> bool:
        """A frame or line has begun and is not whole. Ask when `next_event` has given None."""
        return self._lines.incomplete if self.is_text else self._frames.pending_bytes > 0

    def next_event(self) -> Event | None:
        """What the bytes so far amount to, one event a call; None when there is no whole one."""
        if self.state is _ENDED:
            return None
        try:
            event = self._next_line() if self.is_text else self._next_frame()
        except RemoteProtocolError as error:
            refusal = Refusal(error.code, error.message)
            return self._end(error.code, self.refuse(UNANSWERABLE, refusal))
        if event is None and self._is_eof:
            return self._end_of_file()
        return event

    def _end_of_file(self) -> Ended:
        if not self.incomplete:
            return self._end(END_OF_FILE)
        # Half a request is none, however complete it may look: the peer may have died in mid-write.
        refusal = Refusal("bad_frame", "end of file inside a frame or line; a line ends with a newline")
        return self._end("end of file inside a frame", self.refuse(UNANSWERABLE, refusal))

    def _end(self, reason: str, data: bytes = b"") -> Ended:
        self._enter(State.ENDED)
        return Ended(data, reason)

    # --- frames --------------------------------------------------------------------------------------

    def _next_frame(self) -> Event | None:
        body = self._frames.next_frame()
        if body is None:
            return None
        op = self._legal.get(codec.peek_op(body))
        if op is None:
            return self._not_legal_frame(body)
        if len(body) > op.frame_bytes_max:
            raise _too_large(op, len(body), op.frame_bytes_max)
        array = codec.decode(body, op.items_max, limits.CONTAINERS_MAX)
        number: int = array[1]
        if number == UNANSWERABLE:
            return self._refused(UNANSWERABLE, "bad_message", "0 is no request id; count from 1")
        del array[:2]
        return self._accept(op, number, array)

    def _not_legal_frame(self, body: bytes) -> Event:
        # It is decoded for its request id only, within the limits of a control message.
        if len(body) > limits.CONTROL_FRAME_BYTES_MAX:
            raise RemoteProtocolError(
                "frame_too_large", f"frame of {len(body)} bytes for an op not legal here"
            )
        array = codec.decode(body, limits.LIST_ITEMS_MAX, limits.CONTAINERS_MAX)
        number, request = array[:2]
        if number in self._legal:
            # Spelled in more bytes than it needs, so its own limits were not the ones that held.
            raise RemoteProtocolError("bad_frame", f"op {number} is to be written in one byte")
        return self._not_legal(BY_NUMBER.get(number), request, str(number))

    # --- lines ---------------------------------------------------------------------------------------

    def _next_line(self) -> Event | None:
        line = self._lines.next_line()
        if line is None:
            return None
        return self._json(line) if text.is_json(line) else self._command(line)

    def _json(self, line: bytes) -> Event:
        request = text.parse(line)
        number = request.get("request", UNANSWERABLE)
        if type(number) is not int or not 0 <= number <= limits.INTEGER_MAX:
            return self._refused(UNANSWERABLE, "bad_message", f"`request` is from 0 to {limits.INTEGER_MAX}")
        name = request.get("op")
        op = BY_NAME.get(name) if isinstance(name, str) else None
        if op is None or op.number not in self._legal:
            return self._not_legal(op, number, repr(name)[:80])
        if len(line) > limits.TEXT_FACTOR * op.frame_bytes_max:
            raise _too_large(op, len(line), limits.TEXT_FACTOR * op.frame_bytes_max)
        try:
            values = text.fields(op, request)
        except RemoteProtocolError as error:
            return self._refused(number, error.code, error.message)
        return self._accept(op, number, values)

    def _command(self, line: bytes) -> Event:
        if line == b"quit":
            return self._end("quit")
        if line != b"stats":
            return Refused(beanstalk.UNKNOWN)
        status = BY_MESSAGE[Status]
        if status.number in self._legal:
            return self._accept(status, STATS, [])
        return self._not_legal(status, STATS, status.name)

    # --- what is legal -------------------------------------------------------------------------------

    def _accept(self, op: Op, number: int, fields: list[Any]) -> Event:
        try:
            message = ops.build(op, fields)
        except RemoteProtocolError as error:
            return self._refused(number, error.code, error.message)
        if op.message is Help:
            return Refused(self.answer(number, HELP_TEXT))
        if self.state is _NEW:
            refusal = self._introduce(message)
            if refusal is not None:
                return Refused(self.refuse(number, refusal))
        return Request(number, op, message)

    def _introduce(self, message: Message) -> Refusal | None:
        """Move on from NEW, or say why not."""
        if not isinstance(message, Hello | Pool):
            self._enter(State.CLIENT)
            return None
        if message.version != ops.VERSION:
            return Refusal(
                "version_mismatch", f"this broker speaks version {ops.VERSION}", {"version": ops.VERSION}
            )
        if isinstance(message, Hello) and (wrong := _contradiction(message)):
            return Refusal("bad_message", wrong)
        role = Role(message.role) if isinstance(message, Hello) else Role.SUPERVISE
        if role not in self._roles:
            return Refusal("forbidden", f"this user has no role `{role}`")
        self.role = role
        self._roles = frozenset((role,))
        self._enter(AFTER[role])
        return None

    def _enter(self, state: State) -> None:
        self.state = state
        self._legal = {op.number: op for op in legal_ops(state, self._roles)}
        caps = [op.frame_bytes_max for op in self._legal.values()]
        self._frames.frame_bytes_max = max(caps, default=limits.CONTROL_FRAME_BYTES_MAX)
        self._lines.json_bytes_max = limits.TEXT_FACTOR * self._frames.frame_bytes_max

    def _not_legal(self, op: Op | None, number: int, said: str) -> Refused:
        if op is None:
            return self._refused(number, "unknown_op", f"there is no op {said}; `help` lists them")
        if not op.roles & self._roles:
            return self._refused(number, "forbidden", f"`{op.name}` needs {_one_of(op.roles)}")
        return self._refused(
            number, "wrong_state", f"`{op.name}` is not legal on a {self.state.value} connection"
        )

    # --- bytes out -----------------------------------------------------------------------------------

    def answer(self, number: int, message: Message) -> bytes:
        """The answer to a request, in the connection's own form."""
        if not self.is_text:
            return codec.encode((ANSWER, number, *message))
        if number == STATS:
            return beanstalk.stats_answer(message[0])
        return text.answer_line(number, message)

    def refuse(self, number: int, refusal: Refusal) -> bytes:
        """The refusal of a request; of `UNANSWERABLE`, an error that belongs to none."""
        if not self.is_text:
            return codec.encode((ERROR, number, *refusal))
        if number == STATS:
            return beanstalk.refusal_line(refusal)
        return text.refusal_line(number, refusal)

    def push(self, message: Message) -> bytes:
        """A message nobody asked for: `work.Job` or `work.Kill`."""
        op = BY_MESSAGE[type(message)]
        if self.is_text:
            return text.push_line(op.name, message)
        return codec.encode((op.number, 0, *message))

    def _refused(self, number: int, code: str, message: str) -> Refused:
        return Refused(self.refuse(number, Refusal(code, message)))


def _contradiction(hello: Hello) -> str:
    """Fields that are each legal but cannot hold together; empty if there are none."""
    if hello.role == Role.SUPERVISE:
        return "hello: a supervisor says `pool` instead"
    if hello.ticket and not hello.identity:
        # Its supervisor could never report its end, and its jobs would wait for that.
        return "hello: `ticket` without `identity`"
    return ""


def _one_of(roles: frozenset[Role]) -> str:
    return "the role " + " or ".join(sorted(roles)) if roles else "to be the broker"


def _too_large(op: Op, size: int, limit: int) -> RemoteProtocolError:
    return RemoteProtocolError("frame_too_large", f"{op.name}: {size} bytes; the limit is {limit}")
