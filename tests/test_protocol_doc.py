"""docs/protocol.md against the code: its tables say what the tables of the code say, its examples run.

```frame blocks hold an array and its bytes. ```text blocks are sessions: `> ` lines are sent to a
connection in memory, and what it says must be the `< ` lines. Where the queue itself would answer,
the answer is built from the fields of the expected line and must be written as that line again: so
names, order, spelling and form are tested, and the page needs no broker behind it.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.peers import connection

from stoker.broker.core.lifecycle import TRANSITIONS
from stoker.proto import codec, limits, text
from stoker.proto.connection import STATS, Connection, Ended, Refused, Request
from stoker.proto.errors import REFUSALS
from stoker.proto.frames import HEADER_BYTES
from stoker.proto.legality import LEGAL, State
from stoker.proto.messages import Refusal, StatusReport
from stoker.proto.model import Outcome, Role
from stoker.proto.model import State as JobState
from stoker.proto.ops import BY_NAME, BY_NUMBER, OPS, Op, build

PAGE = (Path(__file__).parents[1] / "docs" / "protocol.md").read_text()
GRID_STATES = (State.NEW, State.CLIENT, State.WORKER, State.SUPERVISOR)
ENDING = {
    "bad_frame",
    "frame_too_large",
    "frame_timeout",
    "handshake_timeout",
    "http_refused",
    "too_many_connections",
}
STATS_SAMPLE: dict[str, Any] = {
    "epoch": 3,
    "draining": False,
    "totals": {"scheduled": 0, "ready": 2, "leased": 1, "done": 9, "dead": 0, "cancelled": 0},
    "queues": {"mail": {"ready": 2, "leased": 1, "oldest_ready_ms": 140, "overflow": "reject"}},
    "pools": [],
    "workers": [],
}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def section(title: str, level: str = "##") -> str:
    found = re.search(
        rf"^{level} {re.escape(title)}\n(.*?)(?=^#{{2,{len(level)}}} |\Z)", PAGE, re.DOTALL | re.MULTILINE
    )
    assert found, title
    return found[1]


def rows(part: str, first: str) -> list[list[str]]:
    """The cells of the table whose first column is called `first`."""
    table = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)*)", part, re.MULTILINE)
    assert table, first
    lines = table[1].splitlines()
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]


# --- tables ----------------------------------------------------------------------------------------------


def test_the_page_has_every_op_and_no_other() -> None:
    assert re.findall(r"^### `(\w+)`", section("Ops"), re.MULTILINE) == [op.name for op in OPS]


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_an_op_has_its_number_roles_and_limit(op: Op) -> None:
    roles = (
        "roles " + ", ".join(role for role in Role if role in op.roles)
        if op.roles
        else "pushed by the broker"
    )
    expected = f"Op {op.number}; {roles}; frame of at most {op.frame_bytes_max:,} bytes."
    assert expected in section(f"`{op.name}`", "###").splitlines()


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_an_op_has_its_fields_with_rule_and_default(op: Op) -> None:
    part = section(f"`{op.name}`", "###")
    if not op.rules:
        assert "No fields." in part.splitlines()
        return
    names: tuple[str, ...] = op.message._fields
    expected = [
        [f"`{name}`", rule.says, "-" if index < op.required else spelled(op.defaults[index])]
        for index, (name, rule) in enumerate(zip(names, op.rules, strict=True))
    ]
    assert rows(part, "field") == expected


def spelled(default: object) -> str:
    odd = {(): "[]", b"": "empty"}
    return odd[default] if isinstance(default, tuple | bytes) else json.dumps(default)


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_an_op_has_its_answer(op: Op) -> None:
    fields = ", ".join(f"`{name}`" for name in op.answer._fields) if op.answer else ""
    expected = f"Answer: {fields or 'no fields'}." if op.answer else "No answer."
    assert expected in section(f"`{op.name}`", "###").splitlines()


def test_the_grid_is_that_of_the_code() -> None:
    expected = [
        [
            f"`{op.name}`",
            *("yes" if role in op.roles else "" for role in Role),
            *("yes" if op.name in LEGAL[state] else "" for state in GRID_STATES),
        ]
        for op in OPS
        if op.roles
    ]
    assert rows(section("Which op is legal where"), "op") == expected


def test_states_transitions_and_outcomes_are_those_of_the_code() -> None:
    part = section("Life of a job")
    assert [row[0] for row in rows(part, "state")] == [f"`{state}`" for state in JobState]
    moves = {(row[0], row[1].partition(":")[0], row[2]) for row in rows(part, "from")}
    assert moves == {(str(state), str(command), str(to)) for (state, command), to in TRANSITIONS.items()}
    assert [row[0] for row in rows(part, "outcome")] == [f"`{outcome}`" for outcome in Outcome]


def test_errors_are_those_of_the_code() -> None:
    table = rows(section("Errors"), "code")
    assert {row[0].strip("`"): row[1] for row in table} == REFUSALS
    assert {row[0].strip("`") for row in table if row[2] == "ends"} == ENDING


def test_limits_are_those_of_the_code() -> None:
    for _, value, name in rows(section("Limits"), "limit"):
        assert int(value.split()[0].replace(",", "")) == getattr(limits, name.strip("`")), name


def test_roles_are_those_of_the_code() -> None:
    assert [row[0] for row in rows(section("Connecting"), "role")] == [f"`{role}`" for role in Role]


# --- frames ----------------------------------------------------------------------------------------------


def array_of(shown: str) -> list[Any]:
    words = {"true": "True", "false": "False", "null": "None"}
    value: list[Any] = ast.literal_eval(re.sub(r"\b(true|false|null)\b", lambda word: words[word[1]], shown))
    return value


@pytest.mark.parametrize("block", blocks("frame"))
def test_a_frame_on_the_page_is_its_bytes_both_ways(block: str) -> None:
    shown, _, pairs = block.partition("\n")
    array, data = array_of(shown), bytes.fromhex(pairs)
    assert codec.encode(array) == data
    assert codec.decode(data[HEADER_BYTES:]) == array
    if array[0] in BY_NUMBER:
        build(BY_NUMBER[array[0]], array[2:])


# --- sessions --------------------------------------------------------------------------------------------


def answer_as(broker: Connection, event: Request, line: str) -> bytes:
    """What the queue would say, built from the line it is expected to say it in."""
    if event.number == STATS:
        return broker.answer(STATS, StatusReport(STATS_SAMPLE))
    fields = json.loads(line)
    if not fields["ok"]:
        return broker.refuse(event.number, Refusal(fields["error"], fields["message"], fields["detail"]))
    assert event.op.answer is not None
    values = {name: fields[name] for name in event.op.answer._fields}
    if isinstance(values.get("result"), dict):
        values["result"] = b"\xcc\xc8"
    return broker.answer(event.number, event.op.answer(**values))


def push_as(broker: Connection, line: str) -> bytes:
    fields = json.loads(line)
    op = BY_NAME[fields["op"]]
    return broker.push(build(op, text.fields(op, fields)))


def replay(session: list[str]) -> Iterator[str]:
    """All that the connection says when the session's `> ` lines are sent to it."""
    broker, answers = connection(), [line[2:] for line in session if line.startswith("<")]
    for line in session:
        if line.startswith('< {"op"'):
            yield push_as(broker, answers.pop(0)).decode()
        if not line.startswith("> "):
            continue
        broker.receive_data(line[2:].encode() + b"\n")
        event = broker.next_event()
        assert event is not None, line
        if isinstance(event, Refused | Ended):
            said = event.data.decode()
        else:
            said = answer_as(broker, event, answers[0]).decode()
        del answers[: said.count("\n")]
        yield said


@pytest.mark.parametrize("block", blocks("text"))
def test_a_session_on_the_page_is_what_a_connection_says(block: str) -> None:
    session = block.splitlines()
    said = "".join(replay(session)).replace("\r\n", "\n").splitlines()
    assert said == [line[2:] for line in session if line.startswith("<")]


def test_the_page_has_examples_of_both_forms() -> None:
    assert len(blocks("frame")) >= 8
    assert len(blocks("text")) >= 4
