"""The pure session: answers find their requests, late ones are dropped, bad ones end the connection."""

import pytest
from support.scripted_broker import answer_frame

from stoker.client.session import Answered, Ended, Event, Pushed, Refused, Session
from stoker.proto import codec, messages, work
from stoker.proto.errors import JobNotFoundError, LocalProtocolError, RefusedError, RemoteProtocolError

STATUS = messages.Status()
JOB = work.Job([1, 2], "id", 7, "kind", "queue", 1, b"", 1000, 1000, 5)


def asked(message: messages.Message = STATUS) -> tuple[Session, int]:
    session = Session()
    number, _ = session.request(message)
    return session, number


def only_event(session: Session, data: bytes) -> Event | None:
    session.receive_data(data)
    event = session.next_event()
    assert session.next_event() is None or isinstance(event, Ended)
    return event


def test_request_is_its_op_its_number_and_its_fields() -> None:
    number, data = Session().request(messages.Cancel("a"))
    assert codec.decode(data[4:]) == [11, number, "a"]


def test_forgotten_answers_are_counted_until_they_come() -> None:
    session, number = asked()
    session.forget(number)
    assert session.forgotten_count == 1
    assert only_event(session, answer_frame(number, messages.StatusReport({}))) is None
    assert session.forgotten_count == 0


def test_answer_to_a_request_that_was_withdrawn_is_a_fault_of_the_peer() -> None:
    session, number = asked()
    session.withdraw(number)
    assert session.forgotten_count == 0
    event = only_event(session, answer_frame(number, messages.StatusReport({})))
    assert isinstance(event, Ended) and isinstance(event.error, RemoteProtocolError)


def test_request_numbers_are_never_used_twice() -> None:
    session = Session()
    assert len({session.request(messages.Status())[0] for _ in range(100)}) == 100


def test_answer_becomes_the_class_that_belongs_to_its_request() -> None:
    session, number = asked(messages.Cancel("a"))
    event = only_event(session, answer_frame(number, messages.Cancelled("a", "cancelled")))
    assert isinstance(event, Answered)
    assert event.message == messages.Cancelled("a", "cancelled")
    assert type(event.message) is messages.Cancelled


def test_answers_in_another_order_find_their_requests() -> None:
    session = Session()
    first, _ = session.request(messages.Cancel("a"))
    second, _ = session.request(messages.Kick("b"))
    session.receive_data(answer_frame(second, messages.Counted(1)))
    session.receive_data(answer_frame(first, messages.Cancelled("a", "cancelled")))
    events = [session.next_event(), session.next_event()]
    assert [event.request for event in events if isinstance(event, Answered)] == [second, first]


@pytest.mark.parametrize("chunk", [1, 3, 5])
def test_chunks_of_any_size_give_the_same_events(chunk: int) -> None:
    session, number = asked()
    data = answer_frame(number, messages.StatusReport({"epoch": 3}))
    events: list[Event | None] = []
    for start in range(0, len(data), chunk):
        session.receive_data(data[start : start + chunk])
        events.append(session.next_event())
    assert events[:-1] == [None] * (len(events) - 1)
    assert isinstance(events[-1], Answered)


def test_refusal_is_the_exception_of_its_code_word() -> None:
    session, number = asked(messages.Show("a"))
    event = only_event(session, answer_frame(number, messages.Refusal("job_not_found", "no job a", {"x": 1})))
    assert isinstance(event, Refused)
    assert isinstance(event.error, JobNotFoundError)
    assert event.error.detail == {"x": 1}


def test_late_answer_to_a_forgotten_request_is_dropped() -> None:
    session, number = asked()
    session.forget(number)
    later, _ = session.request(messages.Cancel("a"))
    session.receive_data(answer_frame(number, messages.StatusReport({})))
    session.receive_data(answer_frame(later, messages.Cancelled("a", "cancelled")))
    event = session.next_event()
    assert isinstance(event, Answered)
    assert event.request == later
    assert session.waiting_count == 0


def test_answer_to_a_request_never_made_ends_the_connection() -> None:
    event = only_event(Session(), answer_frame(5, messages.Done()))
    assert isinstance(event, Ended)
    assert isinstance(event.error, RemoteProtocolError)


def test_error_without_a_request_ends_the_connection_with_the_reason() -> None:
    session, _ = asked()
    event = only_event(session, answer_frame(0, messages.Refusal("too_many_connections", "full")))
    assert isinstance(event, Ended)
    assert isinstance(event.error, RefusedError)
    assert event.error.code == "too_many_connections"


@pytest.mark.parametrize("data", [b"\0\0\0\0", b"\0\0\0\1\xc1", b"{'no': 'frame'}", codec.encode([0, "x"])])
def test_bytes_that_are_no_frame_end_the_connection(data: bytes) -> None:
    session, _ = asked()
    event = only_event(session, data)
    assert isinstance(event, Ended)
    assert isinstance(event.error, RemoteProtocolError)


def test_nothing_is_read_after_the_end() -> None:
    session, number = asked()
    session.receive_data(b"\0\0\0\0")
    session.receive_data(answer_frame(number, messages.StatusReport({})))
    assert isinstance(session.next_event(), Ended)
    assert isinstance(session.next_event(), Ended)


def test_answers_before_the_end_of_file_still_count() -> None:
    session, number = asked()
    session.receive_data(answer_frame(number, messages.StatusReport({})))
    session.receive_eof()
    assert isinstance(session.next_event(), Answered)
    end = session.next_event()
    assert isinstance(end, Ended)
    assert end.error is None


def test_fields_of_a_later_release_are_ignored() -> None:
    session, number = asked(messages.Cancel("a"))
    event = only_event(session, codec.encode([0, number, "a", "cancelled", "new", 1]))
    assert isinstance(event, Answered)
    assert event.message == ("a", "cancelled")


def test_answer_that_lacks_a_field_ends_the_connection() -> None:
    session, number = asked(messages.Cancel("a"))
    assert isinstance(only_event(session, codec.encode([0, number, "a"])), Ended)


def test_push_is_given_to_a_session_that_takes_it() -> None:
    session = Session(pushes={40: work.Job})
    event = only_event(session, codec.encode([40, 0, *JOB]))
    assert isinstance(event, Pushed)
    assert event.message == JOB


def test_push_that_nobody_takes_is_ignored() -> None:
    session, number = asked()
    session.receive_data(codec.encode([40, 0, *JOB]) + answer_frame(number, messages.StatusReport({})))
    assert isinstance(session.next_event(), Answered)


def test_push_cannot_be_sent_as_a_request() -> None:
    with pytest.raises(LocalProtocolError, match="Job"):
        Session(ops=work.OPS).request(JOB)


def test_request_that_cannot_be_encoded_uses_no_number() -> None:
    session = Session()
    with pytest.raises(LocalProtocolError):
        session.request(messages.Cancel("\udcff"))
    assert session.waiting_count == 0
