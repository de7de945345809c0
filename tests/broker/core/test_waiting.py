"""Requests that are answered later: wait, drain, and enqueues that wait for room."""

from collections.abc import Sequence

import pytest
from support.core_builders import House, WorkerPeer, rules_of

from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto.messages import Message, Refusal
from stoker.proto.model import Overflow

FULL = rules_of(jobs_max=1, overflow=Overflow.WAIT)


class Waits(House):
    """A house whose clients wait on connections of their own."""

    def waiting(self, message: object) -> tuple[int, int]:
        """Send a request that must not be answered yet; the key of its answer."""
        connection = self.connect()
        assert self.ask(connection, message) is None
        return connection, self._requests

    def parked(self, id: str, wait_ms: int = 1000, payload: bytes = b"x") -> tuple[int, int]:
        return self.waiting(m.Enqueue(id, "send", payload, wait_ms=wait_ms))

    def answer(self, caller: tuple[int, int]) -> Message | None:
        return self.answers.get(caller)

    def code(self, caller: tuple[int, int]) -> str:
        answer = self.answers[caller]
        assert isinstance(answer, Refusal)
        return answer.code

    def detail(self, caller: tuple[int, int]) -> object:
        answer = self.answers[caller]
        assert isinstance(answer, Refusal)
        return answer.detail


def full() -> tuple[Waits, WorkerPeer]:
    """A queue of one place, taken by a running job `a`."""
    house = Waits(FULL)
    worker = house.worker()
    house.enqueue("a")
    return house, worker


# --- wait -------------------------------------------------------------------------------------------------


def test_wait_is_answered_when_the_job_is_done() -> None:
    house, worker = full()
    caller = house.waiting(m.Wait("a"))
    house.ack(worker, "a", b"42")
    assert house.answer(caller) == m.Waited("a", "done", "ok", "", b"42", 1)


def test_wait_for_a_finished_job_is_answered_at_once() -> None:
    house, worker = full()
    house.ack(worker, "a", b"42")
    assert house.ok(house.client, m.Wait("a")) == m.Waited("a", "done", "ok", "", b"42", 1)


def test_everybody_who_waits_is_answered() -> None:
    house, _ = full()
    callers = [house.waiting(m.Wait("a")) for _ in range(3)]
    house.cancel("a")
    house.pass_time(limits.KILL_GRACE_MS)
    assert [house.answer(caller) for caller in callers] == [house.answer(callers[0])] * 3
    assert house.core.statistics()["waiting"] == 0


def test_wait_ends_with_its_timeout_and_says_where_the_job_is() -> None:
    house, _ = full()
    caller = house.waiting(m.Wait("a", 100))
    house.pass_time(99)
    assert house.answer(caller) is None
    house.pass_time(1)
    assert house.answer(caller) == m.Waited("a", "leased", None, "", None, 1)


def test_each_wait_has_its_own_timeout() -> None:
    house, _ = full()
    short, long = house.waiting(m.Wait("a", 100)), house.waiting(m.Wait("a", 200))
    drain = house.waiting(m.Drain(300))
    house.pass_time(100)
    assert [house.answer(caller) is None for caller in (short, long, drain)] == [False, True, True]
    house.pass_time(100)
    assert [house.answer(caller) is None for caller in (long, drain)] == [False, True]


def test_wait_of_no_time_is_answered_at_once() -> None:
    house, _ = full()
    assert house.ok(house.client, m.Wait("a", 0)).state == "leased"


def test_wait_goes_on_over_retries() -> None:
    house = Waits()
    worker = house.worker()
    house.enqueue("a", backoff_ms=10)
    caller = house.waiting(m.Wait("a"))
    house.nack(worker, "a")
    assert house.answer(caller) is None
    house.pass_time(10)
    house.ack(worker, "a")
    assert house.answer(caller) == m.Waited("a", "done", "ok", "", None, 2)


def test_wait_for_an_unknown_job_is_refused() -> None:
    assert House().refused(1, m.Wait("nobody")) == "job_not_found"


def test_wait_ends_with_its_connection() -> None:
    house, worker = full()
    caller, other = house.waiting(m.Wait("a", 50)), house.waiting(m.Wait("a", 50))
    house.hang_up(caller[0])
    house.ack(worker, "a")
    assert (house.answer(caller), house.answer(other) is None) == (None, False)


def test_request_id_of_an_open_wait_is_refused() -> None:
    house, _ = full()
    house.step(ev.Received(house.client, 77, m.Wait("a")))
    house.step(ev.Received(house.client, 77, m.Wait("a")))
    answer = house.answers[house.client, 77]
    assert isinstance(answer, Refusal)
    assert (answer.code, house.core.statistics()["waiting"]) == ("bad_message", 1)


@pytest.mark.parametrize("message", [m.Wait("a"), m.Drain()])
def test_too_many_waits_are_refused(message: object, monkeypatch: pytest.MonkeyPatch) -> None:
    house, _ = full()
    monkeypatch.setattr(limits, "WAITS_MAX", 2)
    callers = [house.waiting(m.Wait("a")) for _ in range(2)]
    assert house.refused(house.client, message) == "waits_full"
    house.hang_up(callers[0][0])
    house.waiting(message)


# --- drain ------------------------------------------------------------------------------------------------


def test_drain_is_answered_when_the_last_attempt_has_ended() -> None:
    house, worker = full()
    caller = house.waiting(m.Drain())
    house.ack(worker, "a")
    assert house.answer(caller) == m.Drained(0)


def test_drain_of_an_idle_broker_is_answered_at_once() -> None:
    house = House()
    assert house.ok(house.client, m.Drain()) == m.Drained(0)


def test_drain_ends_with_its_timeout_and_says_what_still_runs() -> None:
    house, _ = full()
    caller = house.waiting(m.Drain(100))
    house.pass_time(100)
    assert house.answer(caller) == m.Drained(1)
    assert house.status()["draining"]


def test_drain_ends_with_its_connection() -> None:
    house, worker = full()
    caller = house.waiting(m.Drain())
    house.hang_up(caller[0])
    house.ack(worker, "a")
    assert house.answer(caller) is None


# --- room --------------------------------------------------------------------------------------------------


def test_enqueue_that_waits_is_taken_in_when_there_is_room() -> None:
    house, worker = full()
    caller = house.parked("b")
    house.ack(worker, "a")
    assert house.answer(caller) == m.Enqueued("b", 2)


def test_enqueues_that_wait_come_in_first_come_first_served() -> None:
    house, worker = full()
    callers = [house.parked(id) for id in "bcd"]
    for id in "abc":
        house.ack(worker, id)
    assert [house.answer(caller) for caller in callers] == [
        m.Enqueued(id, number) for number, id in enumerate("bcd", 2)
    ]


def test_newcomer_does_not_pass_by_those_who_wait() -> None:
    house = Waits(rules_of(bytes_max=10, overflow=Overflow.WAIT))
    house.enqueue("a", payload=b"12345678")
    house.parked("big", payload=b"123456")
    house.parked("small", payload=b"1")
    assert house.status()["queues"]["default"]["waiting_for_room"] == 2


def test_enqueue_without_time_to_wait_is_refused() -> None:
    house, _ = full()
    assert house.refused(house.client, m.Enqueue("b", "send", b"")) == "queue_full"


def test_enqueue_that_could_never_fit_is_refused() -> None:
    house = Waits(rules_of(bytes_max=3, overflow=Overflow.WAIT))
    assert house.refused(house.client, m.Enqueue("b", "send", b"1234", wait_ms=9)) == "queue_full"


def test_enqueue_that_waited_in_vain_is_refused() -> None:
    house, _ = full()
    caller = house.parked("b", 100)
    house.pass_time(100)
    assert house.code(caller) == "queue_full"
    assert house.detail(caller) == {"queue": "default", "waits": True}


def test_first_that_gives_up_makes_way_for_one_that_fits() -> None:
    house = Waits(rules_of(bytes_max=10, overflow=Overflow.WAIT))
    house.enqueue("a", payload=b"12345678")
    house.parked("big", 100, b"123456")
    small = house.parked("small", 9999, b"1")
    house.pass_time(100)
    assert house.answer(small) == m.Enqueued("small", 2)


def test_first_that_hangs_up_makes_way_for_one_that_fits() -> None:
    house = Waits(rules_of(bytes_max=10, overflow=Overflow.WAIT))
    house.enqueue("a", payload=b"12345678")
    big, small = house.parked("big", payload=b"123456"), house.parked("small", payload=b"1")
    house.hang_up(big[0])
    assert house.answer(small) == m.Enqueued("small", 2)


def test_repeat_of_a_job_that_waits_is_answered_by_its_own_turn() -> None:
    house, worker = full()
    first, again = house.parked("b"), house.parked("b")
    house.ack(worker, "a")
    house.ack(worker, "b")
    assert house.answer(first) == house.answer(again) == m.Enqueued("b", 2)


def test_room_for_one_who_is_refused_meanwhile_goes_to_the_next() -> None:
    house, worker = full()
    first, second = house.parked("b"), house.parked("c")
    house.enqueue("b", "other", queue="elsewhere")
    house.ack(worker, "a")
    assert house.code(first) == "conflict"
    assert house.answer(second) == m.Enqueued("c", 3)


class Slow(Waits):
    """A house whose repeated look-ups are `due` until a test has them come back."""

    def __init__(self) -> None:
        self.due: list[ev.Received] = []
        super().__init__(FULL)
        self.holder = self.worker()
        self.enqueue("a")

    def _take(self, effects: Sequence[fx.Effect]) -> None:
        self.due += [effect.event for effect in effects if isinstance(effect, fx.LookAgain)]
        super()._take([effect for effect in effects if not isinstance(effect, fx.LookAgain)])

    def take_in(self, id: str) -> tuple[int, int]:
        """An enqueue whose first look-up is over at once, as that of a new id is."""
        connection = self.connect()
        self._requests += 1
        message = m.Enqueue(id, "send", b"x", wait_ms=1000)
        self.event(ev.Received(connection, self._requests, message, {id: ev.Found()}, self.core.steps))
        return connection, self._requests

    def come_back(self) -> None:
        event = self.due.pop(0)
        event.found, event.asked_at = {event.message[0]: ev.Found()}, self.core.steps
        self.event(event)


def test_one_who_was_let_go_and_came_too_late_keeps_its_turn() -> None:
    house = Slow()
    first = house.parked("b")
    house.ack(house.holder, "a")
    house.take_in("faster")
    second = house.take_in("c")
    house.come_back()
    house.ack(house.holder, "faster")
    house.come_back()
    assert (house.answer(first), house.answer(second)) == (m.Enqueued("b", 3), None)


def test_one_who_hangs_up_during_its_look_up_makes_way_for_the_next() -> None:
    house = Slow()
    first, second = house.parked("b"), house.parked("c")
    house.ack(house.holder, "a")
    house.hang_up(first[0])
    house.come_back()
    house.come_back()
    assert (house.answer(first), house.answer(second)) == (None, m.Enqueued("c", 2))


def test_request_id_of_one_who_was_let_go_is_still_in_use() -> None:
    house = Slow()
    first = house.parked("b")
    house.ack(house.holder, "a")
    house.event(ev.Received(*first, m.Status()))
    answer = house.answers.pop(first)
    assert isinstance(answer, Refusal)
    house.come_back()
    assert (answer.code, house.answer(first)) == ("bad_message", m.Enqueued("b", 2))


def test_payloads_that_wait_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    house, worker = full()
    monkeypatch.setattr(limits, "PARKED_BYTES_MAX", 10)
    house.parked("b", payload=b"12345678")
    assert house.refused(house.client, m.Enqueue("c", "send", b"123", wait_ms=9)) == "queue_full"
    house.ack(worker, "a")
    house.parked("c", payload=b"1234567890")


# --- the end of the broker --------------------------------------------------------------------------------


def test_everybody_who_waits_is_told_that_the_broker_stops() -> None:
    house, worker = full()
    callers = [house.waiting(m.Wait("a")), house.waiting(m.Drain()), house.parked("b")]
    house.event(ev.StopRequested())
    assert [house.code(caller) for caller in callers] == ["shutting_down"] * 3
    house.ack(worker, "a")
    assert house.core.statistics()["waiting"] == 0


@pytest.mark.parametrize("message", [m.Wait("a"), m.Drain()])
def test_nobody_begins_to_wait_for_a_stopping_broker(message: object) -> None:
    house, _ = full()
    house.event(ev.StopRequested())
    assert house.refused(house.client, message) == "shutting_down"
