"""The broker's end of a connection: the grid of legal ops, both forms, and how it ends."""

import json
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from support.peers import (
    HELLOS,
    IDENTITY,
    TICKET,
    arrays,
    code,
    connection,
    ended,
    events,
    frame,
    introduced,
    line,
    refused,
    request,
)

from stoker.proto import codec, frames, limits, messages, work
from stoker.proto.connection import STATS, UNANSWERABLE, Connection, Ended, Refused, Request
from stoker.proto.legality import LEGAL, State
from stoker.proto.messages import Enqueue, Hello, Help, Refusal, Status
from stoker.proto.model import Role
from stoker.proto.ops import OPS, Op

ENQUEUE = Enqueue("order-123", "mail", b"[1]")
IN_STATE: dict[State, Callable[[], Connection]] = {
    State.NEW: connection,
    State.CLIENT: lambda: introduced(Role.ADMIN),
    State.WORKER: lambda: introduced(Role.WORK),
    State.SUPERVISOR: lambda: introduced(Role.SUPERVISE),
}
ROLE_IN = {State.CLIENT: Role.ADMIN, State.WORKER: Role.WORK, State.SUPERVISOR: Role.SUPERVISE}
SAMPLES: dict[str, messages.Message] = {
    "hello": HELLOS[Role.ADMIN],
    "pool": HELLOS[Role.SUPERVISE],
    "help": Help(),
    "enqueue": ENQUEUE,
    "cancel": messages.Cancel("a"),
    "kick": messages.Kick("a"),
    "drop": messages.Drop("a"),
    "show": messages.Show("a"),
    "jobs": messages.Jobs(),
    "status": Status(),
    "why": messages.Why("a"),
    "wait": messages.Wait("a"),
    "pause": messages.Pause(),
    "resume": messages.Resume(),
    "drain": messages.Drain(),
    "snapshot": messages.Snapshot("a"),
    "follow": messages.Follow("a"),
    "job": work.Job([1, 1], "a", 1, "k", "q", 1, b"", 1, 1000, 1),
    "ack": work.Ack([1, 1]),
    "nack": work.Nack([1, 1], "error", "why"),
    "release": work.Release([1, 1], "released"),
    "heartbeat": work.Heartbeat([[1, 1]]),
    "progress": work.Progress([1, 1], 3, 12, "pages"),
    "output": work.Output([1, 1], 1, 0, b"said"),
    "stream": work.Stream([1, 1], "keep"),
    "exited": work.Exited("12345678", [], 0, None),
    "kill": work.Kill("12345678", [1, 1], "lost", 0),
    "recall": work.Recall("12345678", [1, 1]),
    "recalled": work.Recalled("12345678", [1, 1]),
}


def as_line(op: Op, message: Any) -> bytes:
    spelled = {
        name: value.decode("latin-1") if type(value) is bytes else value
        for name, value in message._asdict().items()
    }
    return line(op.name, **spelled)


def expected(op: Op, state: State) -> str:
    if state in ROLE_IN and ROLE_IN[state] not in op.roles:
        return "forbidden"
    if not op.roles:
        return "forbidden"
    return "legal" if op.name in LEGAL[state] else "wrong_state"


# --- the grid --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["frame", "line"])
@pytest.mark.parametrize("op", OPS, ids=repr)
@pytest.mark.parametrize("state", IN_STATE)
def test_an_op_is_taken_where_the_table_says_so(state: State, op: Op, form: str) -> None:
    if form == "line" and state is not State.NEW:
        broker = connection()
        request(broker, as_line(op_of(HELLOS[ROLE_IN[state]]), HELLOS[ROLE_IN[state]]))
    else:
        broker = IN_STATE[state]()
    message = SAMPLES[op.name]
    (event,) = events(broker, frame(message) if form == "frame" else as_line(op, message))
    if expected(op, state) != "legal":
        assert isinstance(event, Refused)
        assert code(event.data) == expected(op, state)
    elif op.name == "help":
        assert isinstance(event, Refused)
    else:
        assert isinstance(event, Request)
        assert (event.op, type(event.message)) == (op, op.message)


def op_of(message: messages.Message) -> Op:
    return next(op for op in OPS if op.message is type(message))


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_without_any_role_everything_is_forbidden(op: Op) -> None:
    assert refused(Connection(frozenset()), frame(SAMPLES[op.name])) == "forbidden"


# --- introductions ---------------------------------------------------------------------------------------


def test_a_client_need_not_introduce_itself_and_then_cannot() -> None:
    broker = connection()
    assert request(broker, frame(ENQUEUE, 7)) == Request(7, op_of(ENQUEUE), ENQUEUE)
    assert broker.role is None
    assert refused(broker, frame(HELLOS[Role.WORK])) == "wrong_state"


@pytest.mark.parametrize("role", Role)
def test_the_first_message_of_a_role_sets_it(role: Role) -> None:
    assert introduced(role).role is role


def test_a_role_given_up_is_gone() -> None:
    broker = introduced(Role.SUBMIT)
    assert refused(broker, frame(messages.Kick("a"))) == "forbidden"


def test_requests_behind_hello_in_one_read_have_its_role() -> None:
    hello, ack = frame(HELLOS[Role.WORK], 1), frame(SAMPLES["ack"], 2)
    assert [type(event) for event in events(connection(), hello + ack)] == [Request, Request]


def test_help_comes_before_hello_too() -> None:
    broker = connection()
    (event,) = events(broker, frame(Help(), 5))
    assert isinstance(event, Refused)
    ((answer, number, ops),) = arrays(event.data)
    assert (answer, number, "enqueue" in ops) == (messages.ANSWER, 5, True)
    request(broker, frame(HELLOS[Role.WORK]))


@pytest.mark.parametrize(
    ("message", "word"),
    [
        (Hello(2, Role.SUBMIT), "version_mismatch"),
        (work.Pool(0, "p", TICKET, IDENTITY, []), "version_mismatch"),
        (Hello(1, Role.SUPERVISE), "bad_message"),
        (Hello(1, Role.WORK, ticket=TICKET), "bad_message"),
        (Hello(1, Role.WORK), "forbidden"),
    ],
)
def test_a_refused_introduction_leaves_the_connection_new(message: messages.Message, word: str) -> None:
    broker = connection(Role.SUBMIT, Role.SUPERVISE)
    assert refused(broker, frame(message)) == word
    assert (broker.role, broker.state) == (None, State.NEW)
    request(broker, frame(HELLOS[Role.SUBMIT]))


def test_a_version_mismatch_says_which_version_is_spoken() -> None:
    (event,) = events(connection(), frame(Hello(9, Role.SUBMIT)))
    assert isinstance(event, Refused)
    assert arrays(event.data)[0][4] == {"version": 1}


# --- frames ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "word"),
    [
        ([10, 1, "a", "k", "not bytes"], "bad_message"),
        ([10, 1, "a", "k", bytes(limits.PAYLOAD_BYTES_MAX + 1)], "payload_too_large"),
        ([10, 1, "a"], "bad_message"),
        ([10, 0, "a", "k", b""], "bad_message"),
        ([99, 1], "unknown_op"),
        ([0, 1], "unknown_op"),
        ([23, 1], "unknown_op"),
    ],
)
def test_a_wrong_message_costs_only_itself(array: list[Any], word: str) -> None:
    broker = connection()
    assert refused(broker, codec.encode(array)) == word
    request(broker, frame(ENQUEUE))


def test_a_refusal_names_the_request() -> None:
    (event,) = events(connection(), codec.encode([99, 77]))
    assert isinstance(event, Refused)
    assert arrays(event.data)[0][:3] == [messages.ERROR, 77, "unknown_op"]


BODIES = [
    (b"\xc1", "bad_frame"),
    (b"\x92\x0a", "bad_frame"),
    (b"\x92\xcc\x0a\x01", "bad_frame"),
    (b"\x93\x0a\x01" + b"\x91" * 3000, "bad_frame"),
    (bytes(msgpack.packb([11, 1, "a", ["x"] * 65])), "bad_frame"),
    (bytes(msgpack.packb([11, 1, "a" * limits.CONTROL_FRAME_BYTES_MAX])), "frame_too_large"),
    (bytes(msgpack.packb([99, 1, "a" * limits.CONTROL_FRAME_BYTES_MAX])), "frame_too_large"),
    (b"", "bad_frame"),
]


@pytest.mark.parametrize(("body", "word"), BODIES)
def test_bytes_that_are_no_frame_end_the_connection(body: bytes, word: str) -> None:
    broker = connection()
    assert ended(broker, frames.header(len(body)) + body + frame(ENQUEUE)) == word
    assert events(broker, frame(ENQUEUE)) == []
    assert broker.state is State.ENDED


@pytest.mark.parametrize(
    ("state", "limit"),
    [
        (State.NEW, limits.POOL_FRAME_BYTES_MAX),
        (State.CLIENT, limits.ENQUEUE_FRAME_BYTES_MAX),
        (State.WORKER, limits.LISTING_FRAME_BYTES_MAX),
        (State.SUPERVISOR, limits.POOL_FRAME_BYTES_MAX),
    ],
)
def test_a_header_may_announce_what_the_largest_legal_op_allows(state: State, limit: int) -> None:
    assert events(IN_STATE[state](), frames.header(limit)) == []
    assert ended(IN_STATE[state](), frames.header(limit + 1)) == "frame_too_large"


def test_a_first_byte_that_is_neither_text_nor_zero_is_too_large_a_frame() -> None:
    assert ended(connection(), b"\x16\x03\x01\x02") == "frame_too_large"


# --- lines -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b'{"op": "enqueue"}\n', "bad_message"),
        (b'{"op": "enqueue", "id": "a", "kind": "k", "payload": 5}\n', "bad_message"),
        (b'{"op": "status", "request": -1}\n', "bad_message"),
        (b'{"op": "status", "request": "1"}\n', "bad_message"),
        (b'{"op": "status", "request": 9007199254740993}\n', "bad_message"),
        (b'{"op": "lock"}\n', "unknown_op"),
        (b'{"op": ["status"]}\n', "unknown_op"),
        (b"{}\n", "unknown_op"),
    ],
)
def test_a_wrong_request_in_json_costs_only_itself(data: bytes, word: str) -> None:
    broker = connection()
    assert refused(broker, data) == word
    request(broker, line("status"))


def test_a_request_in_json_is_the_message_that_a_frame_would_be() -> None:
    data = line("enqueue", request=7, id="order-123", kind="mail", payload="[1]")
    assert request(connection(), data) == Request(7, op_of(ENQUEUE), ENQUEUE)


def test_an_unknown_op_is_echoed_escaped_and_short() -> None:
    (event,) = events(connection(), json.dumps({"op": "\x1b" * 500}).encode() + b"\n")
    assert isinstance(event, Refused)
    assert len(event.data) < 400
    assert b"\x1b" not in event.data


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"{nonsense}\n", "bad_frame"),
        (b"GET / HTTP/1.1\r\n", "http_refused"),
        (b"x" * 300, "frame_too_large"),
        (line("cancel", id="a" * 2 * limits.CONTROL_FRAME_BYTES_MAX), "frame_too_large"),
        (b"{" + b" " * 2 * limits.POOL_FRAME_BYTES_MAX, "frame_too_large"),
    ],
)
def test_a_line_that_cannot_be_read_ends_the_connection(data: bytes, word: str) -> None:
    broker = connection()
    assert ended(broker, data) == word
    assert events(broker, line("status")) == []


def test_stats_is_status_in_beanstalkds_form() -> None:
    broker = connection()
    event = request(broker, b"stats\r\n")
    assert (event.number, event.message) == (STATS, Status())
    assert broker.answer(STATS, messages.StatusReport({})).startswith(b"OK ")
    assert broker.refuse(STATS, Refusal("shutting_down", "")) == b"DRAINING\r\n"


def test_stats_needs_what_status_needs() -> None:
    assert events(connection(Role.WORK), b"stats\r\n") == [Refused(b"FORBIDDEN\r\n")]


def test_quit_ends_without_a_word() -> None:
    assert events(connection(), b"quit\r\nstats\r\n") == [Ended(b"", "quit")]


def test_other_commands_are_unknown_and_the_connection_goes_on() -> None:
    broker = connection()
    assert events(broker, b"put 0 0 60 1\r\nstats now\r\n") == [Refused(b"UNKNOWN_COMMAND\r\n")] * 2
    request(broker, b"stats\n")


# --- the form of answers ---------------------------------------------------------------------------------


def test_frames_are_answered_with_frames() -> None:
    broker = connection()
    events(broker, frame(ENQUEUE))
    assert arrays(broker.answer(7, messages.Enqueued("a", 1))) == [[0, 7, "a", 1]]
    assert arrays(broker.refuse(8, Refusal("conflict", "no"))) == [[1, 8, "conflict", "no", {}]]
    assert arrays(broker.push(SAMPLES["kill"])) == [[52, 0, "12345678", [1, 1], "lost", 0]]


def test_lines_are_answered_with_lines() -> None:
    broker = connection()
    events(broker, b"{")
    assert json.loads(broker.answer(7, messages.Enqueued("a", 1))) == {
        "ok": True,
        "request": 7,
        "id": "a",
        "number": 1,
    }
    assert json.loads(broker.refuse(0, Refusal("conflict", "no")))["error"] == "conflict"
    assert json.loads(broker.push(SAMPLES["kill"]))["op"] == "kill"


def test_before_the_first_byte_an_error_is_a_frame() -> None:
    broker = connection()
    assert broker.is_text is None
    assert arrays(broker.refuse(UNANSWERABLE, Refusal("handshake_timeout", "")))[0][:3] == [
        1,
        0,
        "handshake_timeout",
    ]


# --- ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "is_text"), [(b"", None), (frame(ENQUEUE), False), (line("status"), True)])
def test_end_of_file_comes_after_all_that_is_whole(data: bytes, is_text: bool | None) -> None:
    broker = connection()
    broker.receive_data(data)
    broker.receive_eof()
    *whole, last = events(broker)
    assert len(whole) == bool(data)
    assert last == Ended(b"", "end of file")
    assert broker.is_text is is_text


@pytest.mark.parametrize("data", [b"\0", frame(ENQUEUE)[:-1], b"stats", line("status")[:-1]])
def test_end_of_file_inside_a_frame_or_line_is_an_error(data: bytes) -> None:
    broker = connection()
    broker.receive_data(data)
    broker.receive_eof()
    (event,) = events(broker)
    assert isinstance(event, Ended)
    assert code(event.data) == "bad_frame"


@pytest.mark.parametrize("data", [frame(ENQUEUE), line("status")])
def test_a_connection_is_incomplete_while_something_has_begun(data: bytes) -> None:
    broker = connection()
    assert not broker.incomplete
    assert events(broker, data[:-1]) == []
    assert broker.incomplete
    request(broker, data[-1:])
    assert not broker.incomplete


@pytest.mark.parametrize("data", [frame(Status()), b'{"op": "status"}\n'])
def test_nothing_counts_any_more_of_a_connection_that_was_abandoned(data: bytes) -> None:
    broker = connection()
    broker.receive_data(2 * data)
    assert isinstance(broker.next_event(), Request)
    broker.abandon()
    broker.receive_data(data)
    assert broker.next_event() is None
