"""One request through losses: repeated, given up, or called unknown, as its kind allows."""

import pytest

from stoker.client.request import ConnectionLost, Request, answer_within
from stoker.proto import messages
from stoker.proto.errors import (
    BrokerUnreachableError,
    ClientTimeoutError,
    OutcomeUnknown,
    RefusedError,
    StokerError,
    refusal,
)
from stoker.proto.messages import Message

ENQUEUE = messages.Enqueue("a", "k", b"", True)
LOST = ConnectionLost("it was closed", sent=True)
UNSENT = ConnectionLost("broken pipe", sent=False)
ABSENT = BrokerUnreachableError("no broker at /s")


def request(message: Message, *, retry_s: float = 10) -> Request:
    return Request(message, path="/s", timeout_s=5, retry_s=retry_s)


def overdue(*, sent: bool) -> ConnectionLost:
    return ConnectionLost("no answer in time", sent=sent, overdue=True)


def test_enqueue_that_had_left_is_repeated_with_its_id_and_not_as_fresh() -> None:
    asked = request(ENQUEUE)
    assert asked.after_loss(LOST) > 0
    assert asked.message == ENQUEUE._replace(fresh=False)


def test_change_that_had_left_is_unknown_at_once() -> None:
    with pytest.raises(OutcomeUnknown, match="kick"):
        request(messages.Kick("a")).after_loss(LOST)


def test_first_loss_of_what_had_not_left_is_no_reason_to_pause() -> None:
    asked = request(messages.Kick("a"))
    assert asked.after_loss(UNSENT) == 0
    assert asked.after_loss(UNSENT) > 0


def test_absent_broker_is_said_at_once_unless_it_was_there_before() -> None:
    with pytest.raises(BrokerUnreachableError):
        request(messages.Status()).after_absence(ABSENT, expected=False)
    assert request(messages.Status()).after_absence(ABSENT, expected=True) > 0


def test_enqueue_that_had_left_is_unknown_when_the_broker_stays_away() -> None:
    asked = request(ENQUEUE)
    asked.after_loss(LOST)
    with pytest.raises(OutcomeUnknown) as unknown:
        asked.after_absence(ABSENT, expected=False)
    assert unknown.value.job_id == "a"


@pytest.mark.parametrize(
    ("message", "sent", "error"),
    [
        (messages.Status(), True, ClientTimeoutError),
        (messages.Status(), False, BrokerUnreachableError),
        (messages.Kick("a"), True, OutcomeUnknown),
        (messages.Kick("a"), False, BrokerUnreachableError),
        (ENQUEUE, True, OutcomeUnknown),
        (ENQUEUE, False, BrokerUnreachableError),
    ],
)
def test_overdue_answer_ends_it(message: Message, sent: bool, error: type[StokerError]) -> None:
    with pytest.raises(error):
        request(message).after_loss(overdue(sent=sent))


@pytest.mark.parametrize(
    ("message", "error"), [(messages.Status(), ClientTimeoutError), (ENQUEUE, OutcomeUnknown)]
)
def test_overdue_repeat_is_judged_by_what_had_left_before(message: Message, error: type[StokerError]) -> None:
    asked = request(message)
    asked.after_loss(LOST)
    with pytest.raises(error):
        asked.after_loss(overdue(sent=True))


def test_refusal_is_raised_as_it_is() -> None:
    with pytest.raises(RefusedError, match="full"):
        request(ENQUEUE).after_refusal(refusal("queue_full", "full"))


def test_broker_that_stops_is_asked_again_within_patience() -> None:
    stopping = refusal("shutting_down", "stopping")
    assert request(ENQUEUE).after_refusal(stopping) > 0
    with pytest.raises(RefusedError, match="stopping"):
        request(ENQUEUE, retry_s=0).after_refusal(stopping)


def test_refusal_that_says_nothing_of_an_earlier_try_is_unknown() -> None:
    asked = request(ENQUEUE)
    asked.after_loss(LOST)
    with pytest.raises(OutcomeUnknown):
        asked.after_refusal(refusal("storage_full", "the disk is full"))


def test_refused_connection_is_a_refusal_of_the_request() -> None:
    crowded = ConnectionLost("closed", sent=True, error=refusal("too_many_connections", "256"))
    with pytest.raises(RefusedError, match="256"):
        request(ENQUEUE).after_loss(crowded)


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        (messages.Status(), 5),
        (messages.Wait("a", 2000), 7),
        (messages.Wait("a"), None),
        (messages.Drain(1000), 6),
        (messages.Drain(), None),
        (messages.Enqueue("a", "k", b""), 5),
        (messages.Enqueue("a", "k", b"", wait_ms=3000), 8),
        (messages.Snapshot("s"), 600),
    ],
)
def test_answer_may_take_as_long_as_was_asked_for(message: Message, seconds: float | None) -> None:
    assert answer_within(message, 5) == seconds
