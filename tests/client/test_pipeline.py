"""The pure pipeline: its window, the order of repeats, and whom a loss leaves unsettled."""

from collections.abc import Iterator

from stoker.client.pipeline import WINDOW_BYTES, WINDOW_COUNT, WRITE_COUNT, Pipeline
from stoker.client.request import ConnectionLost
from stoker.client.session import Answered, Refused
from stoker.proto import messages
from stoker.proto.errors import BrokerUnreachableError, refusal
from stoker.proto.messages import Enqueue


class Wire:
    """Numbers requests and keeps what was asked of it."""

    def __init__(self) -> None:
        self.sent: list[Enqueue] = []

    def request(self, message: Enqueue) -> tuple[int, bytes]:
        self.sent.append(message)
        return len(self.sent), b"frame"

    def fill(self, pipeline: Pipeline) -> list[Enqueue]:
        """Everything the window allows; what that was."""
        before = len(self.sent)
        while pipeline.fill(self.request):
            pass
        return self.sent[before:]


def jobs(count: int, payload: bytes = b"") -> Iterator[Enqueue]:
    return (Enqueue(f"job-{number}", "k", payload, True) for number in range(count))


def pipeline(source: Iterator[Enqueue], *, retry_s: float = 10) -> Pipeline:
    return Pipeline(source, path="/s", timeout_s=5, retry_s=retry_s)


def stored(number: int) -> Answered:
    return Answered(number, messages.Enqueued(f"job-{number - 1}", number))


def lost() -> ConnectionLost:
    return ConnectionLost("it was closed", sent=True)


def test_one_write_gathers_few_frames() -> None:
    assert len(pipeline(jobs(1000)).fill(Wire().request)) == WRITE_COUNT


def test_window_counts_jobs() -> None:
    wire, run = Wire(), pipeline(jobs(1000))
    assert len(wire.fill(run)) == WINDOW_COUNT
    run.settle(stored(1))
    assert len(wire.fill(run)) == 1


def test_window_counts_bytes_and_lets_one_large_job_pass() -> None:
    wire, run = Wire(), pipeline(jobs(3, bytes(WINDOW_BYTES)))
    assert len(wire.fill(run)) == 1
    run.settle(stored(1))
    assert len(wire.fill(run)) == 1


def test_what_a_loss_left_open_is_sent_again_first_in_order_and_no_longer_fresh() -> None:
    wire, run = Wire(), pipeline(jobs(WINDOW_COUNT + 1))
    wire.fill(run)
    run.settle(stored(2))
    assert run.after_loss(lost()) is not None
    again = wire.fill(run)
    assert [message.id for message in again[:2]] == ["job-0", "job-2"]
    assert [message.fresh for message in again[-2:]] == [False, True]


def test_loss_with_a_full_window_on_its_way_costs_none_of_it() -> None:
    wire, run = Wire(), pipeline(jobs(WINDOW_COUNT))
    flown = wire.fill(run)
    assert run.after_loss(lost()) is not None
    again = wire.fill(run)
    assert [message.id for message in again] == [message.id for message in flown]
    for number in range(len(flown) + 1, len(wire.sent) + 1):
        run.settle(stored(number))
    assert sorted(run.stored) == list(range(WINDOW_COUNT))


def test_loss_without_patience_names_the_unsettled() -> None:
    wire, run = Wire(), pipeline(jobs(3), retry_s=0)
    wire.fill(run)
    run.settle(stored(2))
    assert run.after_loss(lost()) is None
    assert run.unsettled == ["job-0", "job-2"]
    assert run.failure is not None and run.failure[0] == 0


def test_first_refusal_ends_the_taking() -> None:
    wire, run = Wire(), pipeline(jobs(1000))
    wire.fill(run)
    run.settle(Refused(1, refusal("queue_full", "full")))
    assert wire.fill(run) == []
    assert run.taken_count == WINDOW_COUNT
    assert run.is_flying


def test_stopping_broker_gets_nothing_more_and_its_successor_gets_the_rest() -> None:
    wire, run = Wire(), pipeline(jobs(WINDOW_COUNT + 1))
    wire.fill(run)
    run.settle(Refused(1, refusal("shutting_down", "stopping")))
    assert wire.fill(run) == []
    assert not run.is_complete
    assert run.after_stop() is not None
    run.begin()
    assert [message.id for message in wire.fill(run)] == ["job-0"]


def test_absent_broker_is_waited_for_only_if_it_was_there_before() -> None:
    absent = BrokerUnreachableError("no broker")
    assert pipeline(jobs(1)).after_absence(absent, expected=True) is not None
    run = pipeline(jobs(1))
    assert run.after_absence(absent, expected=False) is None
    assert run.failure == (0, absent)
