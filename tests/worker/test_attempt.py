"""An attempt: whatever a handler does, there is one right answer for the broker."""

import gc
from collections.abc import Callable, Generator
from typing import Any

import msgpack
import pytest

from stoker.client.values import encode_arguments
from stoker.proto import limits, ops
from stoker.proto.work import Ack, Nack
from stoker.worker import attempt
from stoker.worker.attempt import Guard
from stoker.worker.errors import JobCancelled, JobTimeout, Permanent, Retry
from stoker.worker.faults import Faults
from stoker.worker.signature import fit_of

TOKEN = (1, 7)


def run(
    function: Callable[..., Any], *args: Any, guard: Guard | None = None, faults: Faults | None = None
) -> Ack | Nack:
    payload = encode_arguments(args, None)
    answer = attempt.run(
        function, TOKEN, payload, guard or Guard(), fits=fit_of(function), faults=faults or Faults()
    )
    # Whatever it is, the broker must take it: what cannot be sent leaves a job in limbo.
    ops.build(ops.BY_MESSAGE[type(answer)], [list(answer.token), *answer[1:]])
    return answer


def raising(error: BaseException) -> Callable[[], None]:
    def handler() -> None:
        raise error

    return handler


def nack(
    function: Callable[..., Any], *args: Any, guard: Guard | None = None, faults: Faults | None = None
) -> Nack:
    answer = run(function, *args, guard=guard, faults=faults)
    assert isinstance(answer, Nack)
    return answer


def sum_of(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}


def test_return_value_becomes_the_result() -> None:
    answer = run(sum_of, 1, 2)
    assert isinstance(answer, Ack)
    assert answer.result is not None
    assert msgpack.unpackb(answer.result) == {"sum": 3}


def test_handler_that_returns_nothing_has_no_result() -> None:
    assert run(lambda: None) == Ack(TOKEN, None, 0)


class Odd(BaseException):
    pass


class TextRaises(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("wrong"), "ValueError: wrong"),
        (SystemExit(0), "SystemExit: 0"),
        (SystemExit("x"), "SystemExit: x"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (Odd("odd"), "test_attempt.Odd: odd"),
        (TextRaises(), "TextRaises: (its text cannot be had"),
        (JobTimeout("raised by the handler itself"), "JobTimeout: raised by the handler itself"),
    ],
)
def test_leaving_by_any_exception_is_an_error_with_class_and_message(
    error: BaseException, reason: str
) -> None:
    answer = nack(raising(error))
    assert answer.outcome == "error"
    assert reason in answer.reason
    assert "in handler" in answer.report


def test_memory_error_has_an_outcome_of_its_own() -> None:
    assert nack(raising(MemoryError())).outcome == "memory"


def test_permanent_is_permanent_and_its_reason_is_kept() -> None:
    answer = nack(raising(Permanent("no such customer")))
    assert (answer.outcome, answer.reason) == ("permanent", "no such customer")


def test_retry_names_its_time_and_reason() -> None:
    answer = nack(raising(Retry(after_s=1.5, reason="busy")))
    assert (answer.outcome, answer.after_ms, answer.reason) == ("error", 1500, "busy")


def test_retry_without_a_time_leaves_it_to_the_backoff() -> None:
    assert nack(raising(Retry())).after_ms is None


class OwnRetry(Retry):
    def __init__(self) -> None:
        """Forgets to call what it inherits."""


def test_retry_that_was_never_initialised_is_an_error_all_the_same() -> None:
    assert nack(raising(OwnRetry())).outcome == "error"


@pytest.mark.parametrize("payload", [b"[", b"\xc1", b"[NaN]"])
def test_payload_that_is_no_arguments_is_permanent_and_runs_nothing(payload: bytes) -> None:
    ran: list[int] = []
    answer = attempt.run(lambda: ran.append(1), TOKEN, payload, Guard(), fits=fit_of(lambda: None))
    assert isinstance(answer, Nack)
    assert (answer.outcome, ran) == ("permanent", [])


@pytest.mark.parametrize("value", [object(), {1, 2}, "x" * (limits.RESULT_BYTES_MAX + 1), 2**70, "\ud800"])
def test_result_that_cannot_be_kept_is_permanent_because_the_work_is_done(value: object) -> None:
    answer = nack(lambda: value)
    assert answer.outcome == "permanent"
    assert "the handler finished" in answer.reason


def test_arguments_that_do_not_fit_are_permanent_and_run_nothing() -> None:
    answer = nack(sum_of, 1)
    assert answer.outcome == "permanent"
    assert "sum_of() missing 1 required positional argument: 'b'" in answer.reason


def test_type_error_from_inside_the_handler_is_an_ordinary_error() -> None:
    untyped: Callable[..., Any] = sum_of
    answer = nack(lambda: untyped(1))
    assert answer.outcome == "error"
    assert "missing 1 required positional argument" in answer.reason


STRICT = Faults(retried=(ConnectionError,), permanent=(ConnectionRefusedError,))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConnectionResetError(), "error"),
        (ConnectionRefusedError(), "permanent"),
        (ValueError(), "permanent"),
        (SystemExit(0), "permanent"),
        (Retry(), "error"),
        (Permanent(), "permanent"),
        (MemoryError(), "memory"),
    ],
)
def test_kind_says_which_exceptions_are_tried_again(error: BaseException, outcome: str) -> None:
    answer = nack(raising(error), faults=STRICT)
    assert answer.outcome == outcome
    assert type(error).__name__ in answer.reason or isinstance(error, Retry | Permanent)


def test_struck_attempt_is_a_timeout_whatever_its_kind_makes_permanent() -> None:
    guard = Guard()
    everything = Faults(permanent=(BaseException,))
    assert nack(lambda: guard.strike("timeout"), guard=guard, faults=everything).outcome == "timeout"


@pytest.mark.parametrize(
    ("reason", "raised", "outcome"),
    [
        ("timeout", JobTimeout, "timeout"),
        ("cancelled", JobCancelled, "cancelled"),
        ("lost", JobCancelled, "cancelled"),
        ("silent", JobTimeout, "timeout"),
    ],
)
def test_struck_handler_ends_with_what_it_was_struck_for(
    reason: str, raised: type[BaseException], outcome: str
) -> None:
    guard = Guard()
    seen: list[type[BaseException]] = []

    def handler() -> None:
        try:
            guard.strike(reason)
        except BaseException as error:
            seen.append(type(error))
            raise

    assert nack(handler, guard=guard).outcome == outcome
    assert seen == [raised]


def test_struck_attempt_can_no_longer_succeed() -> None:
    guard = Guard()

    def handler() -> str:
        try:
            guard.strike("timeout")
        except JobTimeout:
            return "done all the same"

    assert nack(handler, guard=guard).outcome == "timeout"


def test_struck_attempt_is_a_timeout_whatever_it_raises_instead() -> None:
    guard = Guard()

    def handler() -> None:
        try:
            guard.strike("timeout")
        finally:
            raise Permanent("cleaning up failed")

    assert nack(handler, guard=guard).outcome == "timeout"


def test_guard_is_armed_for_the_handler_and_for_nothing_else() -> None:
    guard = Guard()
    seen: list[object] = []
    run(lambda: seen.append(guard.armed), guard=guard)
    assert (seen, guard.armed) == ([TOKEN], None)


def test_guard_is_disarmed_after_a_handler_that_raised() -> None:
    guard = Guard()
    run(raising(Odd()), guard=guard)
    assert guard.armed is None


def test_strike_disarms_so_that_it_comes_once() -> None:
    guard = Guard()
    guard.armed = TOKEN
    with pytest.raises(JobTimeout):
        guard.strike("timeout")
    assert guard.armed is None


def test_earlier_strike_does_not_stick_to_the_next_attempt() -> None:
    guard = Guard()
    run(lambda: guard.strike("timeout"), guard=guard)
    assert isinstance(run(lambda: None, guard=guard), Ack)


class TellsItsEnd:
    ended = False

    def __del__(self) -> None:
        TellsItsEnd.ended = True


def test_failed_attempt_keeps_nothing_of_the_handler_alive() -> None:
    def handler() -> None:
        _held = TellsItsEnd()
        raise ValueError

    TellsItsEnd.ended = False
    run(handler)
    gc.collect()
    assert TellsItsEnd.ended


def test_generator_that_is_closed_in_a_handler_does_not_disturb() -> None:
    def numbers() -> Generator[int, None, None]:
        yield 1

    assert isinstance(run(lambda: numbers().close()), Ack)


def test_attempt_that_never_ran_says_why() -> None:
    answer = attempt.never_run(TOKEN, "timeout")
    assert (answer.outcome, answer.reason) == ("timeout", "over its time limit before it started")


def test_unknown_kind_is_an_error_so_that_backoff_applies() -> None:
    assert attempt.unknown_kind(TOKEN, "gone").outcome == "error"
