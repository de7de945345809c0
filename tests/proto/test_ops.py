"""The table of ops, and messages built from fields by it."""

from typing import Any

import pytest

from stoker.proto import limits, messages, ops, work
from stoker.proto.errors import RemoteProtocolError
from stoker.proto.messages import Enqueue, Hello
from stoker.proto.ops import BY_MESSAGE, OPS, Op, build

ENQUEUE = BY_MESSAGE[Enqueue]


def refusal_of(op: Op, fields: list[Any]) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        build(op, fields)
    return caught.value


def test_every_request_and_push_has_one_line_in_the_table() -> None:
    assert {op.message for op in OPS} == messages.OPS.keys() | work.OPS.keys()
    assert len(ops.BY_NUMBER) == len(ops.BY_NAME) == len(ops.BY_MESSAGE) == len(OPS)


def test_numbers_ascend_and_are_one_byte_beside_those_of_answers() -> None:
    numbers = [op.number for op in OPS]
    assert numbers == sorted(numbers)
    assert not {messages.ANSWER, messages.ERROR} & set(numbers)
    assert max(numbers) < 128


def test_what_has_no_answer_is_sent_by_nobody_but_the_broker_or_is_progress() -> None:
    unanswered = {op.name for op in OPS if op.answer is None}
    assert unanswered == {op.name for op in OPS if not op.roles} | {"progress"}


def test_no_field_is_called_as_a_line_of_json_calls_its_own() -> None:
    fields = {name for op in OPS for name in op.message._fields}
    answers = {name for op in OPS if op.answer for name in op.answer._fields}
    assert not (fields | answers) & {"op", "request", "ok", "error"}


def test_trailing_fields_that_are_left_out_take_their_defaults() -> None:
    assert build(ENQUEUE, ["a", "k", b"p"]) == Enqueue("a", "k", b"p")
    assert build(BY_MESSAGE[Hello], [1, "submit"]) == Hello(1, "submit")


def test_fields_of_a_later_release_are_ignored() -> None:
    full = [*Enqueue("a", "k", b"p"), "unknown", [1]]
    assert build(ENQUEUE, full) == Enqueue("a", "k", b"p")


def test_a_missing_field_is_named() -> None:
    error = refusal_of(ENQUEUE, ["a", "k"])
    assert (error.code, error.message) == ("bad_message", "enqueue: field `payload` is missing")


def test_a_wrong_field_is_named_with_its_rule() -> None:
    error = refusal_of(ENQUEUE, ["a", "k", b"p", False, None, 0, -1])
    assert error.code == "bad_message"
    assert error.message.startswith("enqueue: `delay_ms` must be an integer (ms) from 0 to")


def test_the_first_wrong_field_is_named_although_a_default_stands_before_it() -> None:
    hello = BY_MESSAGE[Hello]
    error = refusal_of(hello, [1, "work", "", Hello._field_defaults["identity"], b"", [], -1])
    assert "`slots`" in error.message


def test_too_much_data_is_payload_too_large() -> None:
    error = refusal_of(ENQUEUE, ["a", "k", bytes(limits.PAYLOAD_BYTES_MAX + 1)])
    assert error.code == "payload_too_large"
    assert str(limits.PAYLOAD_BYTES_MAX) in error.message


def test_text_where_data_belongs_is_a_bad_message() -> None:
    assert refusal_of(ENQUEUE, ["a", "k", "p"]).code == "bad_message"


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_a_default_is_a_value_that_the_rule_accepts(op: Op) -> None:
    for rule, default in zip(op.rules[op.required :], op.defaults[op.required :], strict=True):
        assert rule.accepts([] if default == () else default)


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_one_message_as_long_as_its_rules_allow_fits_into_its_frame(op: Op) -> None:
    assert op.frame_bytes_max <= limits.FRAME_BYTES_MAX
    assert op.frame_bytes_max >= sum(rule.bytes_max or 0 for rule in op.rules)
