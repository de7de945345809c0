"""`stoker enqueue`: options become the fields of the message, and the id is printed."""

import io
import re
import sys
import types
from datetime import UTC, datetime

import pytest
from support.command_line import CommandLine, enqueued
from support.scripted_broker import Hang, ScriptedBroker

from stoker.cli import options
from stoker.client.values import decode_value
from stoker.proto import limits, messages
from stoker.proto.ops import BY_NAME

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\n")


def sent(socket_path: str, stoker: CommandLine, *arguments: str) -> messages.Enqueue:
    return enqueued(socket_path, stoker, "enqueue", *arguments)


def test_id_that_was_made_is_printed(socket_path: str, stoker: CommandLine) -> None:
    message = sent(socket_path, stoker, "resize")
    assert UUID.fullmatch(f"{message.id}\n")
    assert message.kind == "resize"


def test_arguments_are_json(socket_path: str, stoker: CommandLine) -> None:
    message = sent(socket_path, stoker, "k", "--args", '[1, {"a": null}]', "--kwargs", '{"b": 2.5}')
    assert decode_value(message.payload) == [[1, {"a": None}], {"b": 2.5}]


def test_datetime_has_a_spelling_in_json(socket_path: str, stoker: CommandLine) -> None:
    spelled = '[{"$datetime": "2026-07-20T10:15:00+02:00"}]'
    (at,), _ = decode_value(sent(socket_path, stoker, "k", "--args", spelled).payload)
    assert at == datetime(2026, 7, 20, 8, 15, tzinfo=UTC)


def test_every_option_has_its_field(socket_path: str, stoker: CommandLine) -> None:
    options = (
        "--id a --queue q --priority -5 --delay 1s --expires 2m --attempts-max 3 --crashes-max 4 "
        "--time-limit 5s --lease 500ms --backoff 6s --backoff-cap 1h --header x=y=z --header a= --room-wait 7s"
    )
    message = sent(socket_path, stoker, "k", *options.split())
    assert message == messages.Enqueue(
        "a", "k", message.payload, False, "q", -5, 1000, None, 120_000, 3, 4, 5000, 500, 6000, 3_600_000,
        {"x": "y=z", "a": ""}, 7000,
    )  # fmt: skip


@pytest.mark.parametrize("moment", ["2030-01-31T08:00:00+01:00", "2030-01-31T07:00:00Z"])
def test_moment_is_iso_8601(moment: str, socket_path: str, stoker: CommandLine) -> None:
    assert sent(socket_path, stoker, "k", "--at", moment).run_at_ms == 1_896_073_200_000


def test_raw_payload_is_sent_as_it_is(socket_path: str, stoker: CommandLine) -> None:
    assert sent(socket_path, stoker, "k", "--payload", "not\udcffjson").payload == b"not\xffjson"


def test_payload_comes_from_stdin(
    socket_path: str, stoker: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(b"\0\xff")))
    assert sent(socket_path, stoker, "k", "--payload", "-").payload == b"\0\xff"


def test_payload_over_the_limit_is_refused_and_nothing_is_sent(
    socket_path: str, stoker: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = io.BytesIO(b"x" * (limits.PAYLOAD_BYTES_MAX + 100))
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=data))
    ran = stoker("enqueue", "k", "--payload", "-")
    assert ran.code == 4
    assert ran.err.startswith("stoker: payload_too_large: stdin holds more than the 1048576 bytes")


@pytest.mark.parametrize(
    ("option", "text", "says"),
    [
        ("--args", "{}", "must be a list"),
        ("--args", "[1", "not JSON"),
        ("--args", "[" * 100_000, "not JSON"),
        ("--kwargs", "[]", "must be an object"),
        ("--kwargs", '{"a": 1, "a": 2}', "duplicate key"),
        ("--args", "[NaN]", "NaN is no JSON"),
        ("--kwargs", '{"a": -Infinity}', "-Infinity is no JSON"),
        ("--args", "[1e999]", "too large"),
        ("--delay", "5", "not a duration"),
        ("--delay", "-5s", "not a duration"),
        ("--at", "tomorrow", "2030-01-31"),
        ("--header", "novalue", "name=text"),
        ("--priority", "high", "not a number from -1000000 to 1000000"),
        ("--priority", "-99999999", "not a number from -1000000 to 1000000"),
        ("--lease", "1ms", "from 100ms to 1d"),
        ("--time-limit", "0s", "from 1ms"),
        ("--attempts-max", "0", "not a number from 1"),
        ("--queue", "a b", "is not 1 to 128 characters"),
        ("--id", "", "is not 1 to 128 characters"),
        ("--at", "1960-01-01T00:00:00Z", "before 1970"),
        ("--header", "a=" + "x" * 1025, "does not fit"),
    ],
)
def test_option_that_cannot_be_read_is_exit_2(option: str, text: str, says: str, stoker: CommandLine) -> None:
    ran = stoker("enqueue", "k", f"{option}={text}")
    assert ran.code == 2
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1


def test_value_that_cannot_travel_is_named_by_its_path(stoker: CommandLine) -> None:
    ran = stoker("enqueue", "k", "--args", '[{"a": ["\\ud800"]}]')
    assert ran.code == 2
    assert "args[0].a[0]: a lone surrogate" in ran.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--payload x --args []", "--payload takes the place"),
        ("--at 2030-01-01 --delay 5s", "either --at or --delay"),
        ("--backoff 1h --backoff-cap 1s", "--backoff-cap is below --backoff"),
        ("--header a=b --header a=c", "each --header once"),
        (" ".join(f"--header h{number}=x" for number in range(33)), "at most 32 headers"),
    ],
)
def test_options_that_contradict_each_other_are_exit_2(
    arguments: str, says: str, stoker: CommandLine
) -> None:
    ran = stoker("enqueue", "k", *arguments.split())
    assert ran.code == 2
    assert says in ran.err


def test_ranges_are_those_of_the_wire(socket_path: str, stoker: CommandLine) -> None:
    edges = "--delay 0s --expires 1ms --attempts-max 100000 --lease 1d --room-wait 3650d --priority 1000000"
    message = sent(socket_path, stoker, "k", *edges.split())
    op = BY_NAME["enqueue"]
    values = [value for value in zip(op.rules, message, strict=True) if value[1] is not None]
    assert all(rule.accepts(value) for rule, value in values)


def test_unknown_outcome_is_exit_7_and_names_the_id(
    socket_path: str, stoker: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "TIMEOUT_S", 0.05)
    with ScriptedBroker(socket_path, lambda _: Hang()):
        ran = stoker("enqueue", "k", "--id", "order-1")
    assert ran.code == 7
    assert "id='order-1'" in ran.err
