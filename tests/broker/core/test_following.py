"""Output that is followed: who gets what of it, who is kept waiting, and what is lost to whom."""

from typing import Any

import pytest
from support.core_builders import House, WorkerPeer

from stoker.broker.core import events as ev
from stoker.broker.core.following import PIECE_BYTES
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto import work as w
from stoker.proto.messages import Refusal
from stoker.proto.model import Outcome

OUT, ERR = m.STDOUT, m.STDERR
CHUNK = limits.OUTPUT_CHUNK_BYTES_MAX


class Follower:
    """A connection that follows job `a`, and reads on from what it has had."""

    def __init__(self, house: "Stage", **fields: Any) -> None:
        self._house = house
        self._fields = fields
        self.connection = house.connect()
        self.had: dict[int, int] = {OUT: 0, ERR: 0}
        self.attempt = 0
        self.texts: list[tuple[int, int, bytes]] = []
        self.request = 0
        self._is_read = True

    def ask(self, **fields: Any) -> Any:
        """Read what came, and ask for more; the answer, if there is one at once."""
        self.answer()
        message = m.Follow("a", self.attempt, self.had[OUT], self.had[ERR], **self._fields | fields)
        self._house.ask(self.connection, message)
        self.request, self._is_read = self._house.last_request, False
        return self.answer()

    def answer(self) -> Any:
        """That to the last request by now."""
        answer = self._house.answers.get((self.connection, self.request))
        if isinstance(answer, m.Followed) and not self._is_read:
            self._is_read, self.attempt = True, answer.attempt
            for stream, offset, data in answer.pieces:
                self.had[stream] = offset + len(data)
                self.texts.append((stream, offset, data))
        return answer


class Stage(House):
    """A house with a worker that runs job `a` and says things of it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = self.worker()
        self.said: dict[int, int] = {OUT: 0, ERR: 0}

    def run(self) -> None:
        """It is handed to the worker."""
        self.enqueue("a")
        assert self.state("a") == "leased"

    def say(self, data: bytes, stream: int = OUT, *, skipped: int = 0) -> Any:
        """A chunk, after so many bytes that the worker has dropped; the answer, if there is one at once."""
        offset = self.said[stream] + skipped
        self.said[stream] = offset + len(data)
        message = w.Output(self.token("a"), stream, offset, data)
        return self.ask(self.runner.connection, message)

    def answered(self, request: int) -> Any:
        return self.answers.get((self.runner.connection, request))

    def follows(self) -> list[str]:
        """Policies that workers were told since the last call."""
        return [push.policy for _, push in self.pushed(w.Stream)]


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.run()
    return stage


# --- who gets what ------------------------------------------------------------------------------------------


def test_worker_is_told_once_that_somebody_follows(stage: Stage) -> None:
    assert stage.pushed(w.Job)[0][1].follow is None
    follower, other = Follower(stage), Follower(stage)
    assert follower.ask() is None and other.ask() is None
    assert stage.pushed(w.Stream) == [(stage.runner.connection, w.Stream(stage.token("a"), "keep"))]


def test_follower_that_waits_gets_what_comes_and_then_what_comes_next(stage: Stage) -> None:
    follower = Follower(stage)
    assert follower.ask() is None
    stage.say(b"one")
    assert follower.answer() == m.Followed("a", None, 1, [[OUT, 0, b"one"]])
    assert follower.ask() is None
    stage.say(b"two", ERR)
    assert follower.answer() == m.Followed("a", None, 1, [[ERR, 0, b"two"]])


def test_follower_is_told_of_the_end_when_it_has_had_all(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.say(b"last words")
    stage.ack(stage.runner, "a")
    assert follower.answer() == m.Followed("a", None, 1, [[OUT, 0, b"last words"]])
    assert follower.ask() == m.Followed("a", "done", 1, [])
    assert stage.core.statistics()["followed"] == 0


def test_follower_that_waits_is_told_of_the_end_at_once(stage: Stage) -> None:
    follower = Follower(stage)
    assert follower.ask() is None
    stage.ack(stage.runner, "a")
    assert follower.answer() == m.Followed("a", "done", 0, [])


def test_finished_job_has_a_state_and_no_output(stage: Stage) -> None:
    stage.ack(stage.runner, "a")
    assert Follower(stage).ask() == m.Followed("a", "done", 0, [])


def test_unknown_job_cannot_be_followed_unless_it_is_awaited() -> None:
    stage = Stage()
    assert stage.refused(stage.client, m.Follow("a")) == "job_not_found"
    follower = Follower(stage, lossless=True)
    assert follower.ask(awaited=True, timeout_ms=0) == m.Followed("a", None, 0, [])
    stage.run()
    assert stage.pushed(w.Job)[0][1].follow == "block"
    assert follower.ask() is None


def test_awaited_job_that_had_finished_before_is_over() -> None:
    stage = Stage()
    stage.run()
    stage.ack(stage.runner, "a")
    follower = Follower(stage)
    assert follower.ask(awaited=True, timeout_ms=0) == m.Followed("a", None, 0, [])
    assert follower.ask() == m.Followed("a", "done", 0, [])


def test_time_is_up_without_news(stage: Stage) -> None:
    follower = Follower(stage)
    assert follower.ask(timeout_ms=500) is None
    stage.pass_time(499)
    assert follower.answer() is None
    stage.pass_time(1)
    assert follower.answer() == m.Followed("a", None, 0, [])


def test_request_that_comes_before_the_last_was_answered_takes_its_place(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    first = follower.request
    assert follower.ask() is None
    assert stage.answers[follower.connection, first] == m.Followed("a", None, 0, [])


def test_request_id_of_a_follow_that_waits_is_in_use(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    again = ev.Received(follower.connection, stage.last_request, m.Status())
    stage.event(again)
    answer = stage.answers[follower.connection, stage.last_request]
    assert isinstance(answer, Refusal) and answer.code == "bad_message"


def test_answer_is_no_longer_than_a_chunk_of_each_stream(stage: Stage) -> None:
    follower, other = Follower(stage), Follower(stage)
    other.ask()
    for _ in range(3):
        stage.say(bytes(CHUNK))
        other.ask()
    follower.ask()
    first = sum(len(data) for _, _, data in follower.texts)
    assert 0 < limits.FOLLOWED_ANSWER_BYTES - first <= 2 * PIECE_BYTES
    follower.ask()
    assert follower.had[OUT] == 3 * CHUNK


def test_what_trickles_is_held_in_few_pieces_and_told_in_order(stage: Stage) -> None:
    quick, slow = Follower(stage), Follower(stage)
    quick.ask()
    slow.ask()
    for number in range(3000):
        stage.say(b"%d\n" % number)
        quick.ask()
    slow.ask()
    assert b"".join(data for _, _, data in slow.texts) == b"".join(b"%d\n" % number for number in range(3000))
    assert len(slow.texts) < 10


def test_small_pieces_are_bounded_as_well(stage: Stage) -> None:
    quick, slow = Follower(stage), Follower(stage)
    quick.ask()
    for _ in range(limits.FOLLOWED_BYTES_MAX // PIECE_BYTES):
        stage.say(b"o")
        quick.ask()
        stage.say(b"e", ERR)
        quick.ask()
    slow.ask()
    while slow.had[OUT] < stage.said[OUT] or slow.had[ERR] < stage.said[ERR]:
        slow.ask()
    assert len(slow.texts) <= limits.FOLLOWED_BYTES_MAX // PIECE_BYTES
    assert slow.texts[0][1] > 0, "what is older was dropped"


def test_next_attempt_begins_anew(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.say(b"first")
    follower.ask()
    stage.nack(stage.runner, "a")
    assert follower.ask() is None
    stage.pass_time(limits.DAY_MS)
    assert stage.pushed(w.Job)[-1][1].follow == "keep"
    stage.said = {OUT: 0, ERR: 0}
    stage.say(b"2nd")
    assert follower.answer() == m.Followed("a", None, 2, [[OUT, 0, b"2nd"]])


def retried(stage: Stage) -> None:
    """The attempt fails, and the next one runs."""
    stage.nack(stage.runner, "a")
    stage.pass_time(limits.DAY_MS)
    stage.said = {OUT: 0, ERR: 0}


@pytest.mark.parametrize("fields", [{}, {"lossless": True}])
def test_what_a_slow_follower_had_not_had_of_an_attempt_is_told_as_a_gap(
    stage: Stage, fields: dict[str, bool]
) -> None:
    slow = Follower(stage, **fields)
    slow.ask()
    stage.say(b"first")
    slow.answer()
    stage.say(b" and more")
    stage.say(b"err", ERR)
    retried(stage)
    stage.say(b"2nd")
    assert slow.ask() == m.Followed("a", None, 1, [[OUT, 14, b""], [ERR, 3, b""]])
    assert slow.ask() == m.Followed("a", None, 2, [[OUT, 0, b"2nd"]])


def test_gaps_of_two_attempts_are_told_one_after_the_other(stage: Stage) -> None:
    slow = Follower(stage)
    slow.ask()
    stage.say(b"first")
    slow.answer()
    stage.say(b" and more")
    for text in (b"2nd", b"3rd"):
        retried(stage)
        stage.say(text)
    assert slow.ask() == m.Followed("a", None, 1, [[OUT, 14, b""]])
    assert slow.ask() == m.Followed("a", None, 2, [[OUT, 3, b""]])
    assert slow.ask() == m.Followed("a", None, 3, [[OUT, 0, b"3rd"]])


def test_gap_of_an_attempt_that_a_follower_has_had_nothing_of_is_all_of_it(stage: Stage) -> None:
    quick, late = Follower(stage), Follower(stage)
    late.ask(timeout_ms=0)
    quick.ask()
    stage.say(b"first")
    retried(stage)
    stage.say(b"2nd")
    assert late.ask() == m.Followed("a", None, 1, [[OUT, 5, b""]])
    assert late.ask() == m.Followed("a", None, 2, [[OUT, 0, b"2nd"]])


def test_follower_that_had_all_of_an_attempt_before_it_asked_again_is_told_of_no_gap(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.say(b"first")
    retried(stage)
    stage.say(b"2nd")
    assert follower.ask() == m.Followed("a", None, 2, [[OUT, 0, b"2nd"]])


# --- the pace -------------------------------------------------------------------------------------------------


def test_chunk_is_passed_when_the_quickest_has_come_back_for_more(stage: Stage) -> None:
    quick, slow = Follower(stage), Follower(stage)
    quick.ask()
    slow.ask()
    assert stage.say(b"one") is None
    request = stage.last_request
    assert quick.answer() is not None
    assert stage.answered(request) is None
    quick.ask()
    assert stage.answered(request) == w.Passed(is_followed=True)


def test_lossless_follower_is_waited_for_however_quick_others_are(stage: Stage) -> None:
    quick, slow = Follower(stage), Follower(stage, lossless=True)
    quick.ask()
    slow.ask()
    assert stage.follows() == ["keep", "block"]
    stage.say(b"one")
    request = stage.last_request
    quick.answer()
    quick.ask()
    assert stage.answered(request) is None
    slow.answer()
    slow.ask()
    assert stage.answered(request) == w.Passed(is_followed=True)


def test_worker_is_told_when_nobody_is_lossless_any_more(stage: Stage) -> None:
    quick, slow = Follower(stage), Follower(stage, lossless=True)
    quick.ask()
    slow.ask()
    stage.say(b"one")
    request = stage.last_request
    quick.ask()
    assert stage.answered(request) is None
    stage.hang_up(slow.connection)
    assert stage.answered(request) == w.Passed(is_followed=True)
    quick.ask()
    assert stage.follows() == ["keep", "block", "keep"]


def test_nobody_follows_any_more(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.say(b"one")
    request = stage.last_request
    stage.hang_up(follower.connection)
    assert stage.answered(request) == w.Passed(is_followed=False)
    assert stage.say(b"two") == w.Passed(is_followed=False)
    assert stage.core.statistics()["followed"] == 0


def test_slow_follower_sees_by_the_offset_what_it_has_lost(stage: Stage) -> None:
    quick, slow = Follower(stage), Follower(stage)
    quick.ask()
    slow.ask()
    stage.say(b"seen")
    quick.ask()
    slow.answer()
    for _ in range(3):
        stage.say(bytes(CHUNK))
        quick.ask()
    stage.say(bytes(CHUNK))
    slow.ask()
    assert slow.texts[1][:2] == (OUT, 4 + CHUNK)
    assert [offset for _, offset, _ in quick.texts] == [0, *range(4, 4 + 3 * CHUNK, CHUNK)]


def drop_what_was_said(stage: Stage, quick: Follower) -> None:
    """Fill what is held with the other stream, as quickly as somebody takes it."""
    for _ in range(5):
        stage.say(bytes(CHUNK))
        quick.ask()


def test_lossless_follower_that_comes_late_is_told_of_what_is_dropped_and_not_waited_for(
    stage: Stage,
) -> None:
    quick = Follower(stage)
    quick.ask()
    stage.say(b"early", ERR)
    quick.ask()
    drop_what_was_said(stage, quick)
    late = Follower(stage, lossless=True)
    while late.had[OUT] < stage.said[OUT]:
        assert late.ask() is not None
    late.ask()
    assert late.had[ERR] == 5
    assert [text for text in late.texts if text[0] == ERR] == [(ERR, 5, b"")]
    stage.said[ERR] = 0
    stage.say(b"early", ERR)
    assert stage.answered(stage.last_request) == w.Passed(is_followed=True), "all know that it is lost"


def test_loss_at_the_end_is_told_by_the_worker(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.say(b"one")
    follower.ask()
    stage.say(b"", skipped=1000)
    assert follower.answer() == m.Followed("a", None, 1, [[OUT, 1003, b""]])
    stage.ack(stage.runner, "a")
    assert follower.ask() == m.Followed("a", "done", 1, [])


def test_news_of_one_stream_are_no_reason_to_forget_the_other(stage: Stage) -> None:
    quick, slow = Follower(stage), Follower(stage)
    quick.ask()
    slow.ask()
    for stream in (OUT, ERR, OUT):
        stage.say(b"one", stream)
        quick.ask()
    slow.answer()
    stage.say(b"two", ERR)
    quick.ask()
    slow.ask()
    slow.ask()
    assert slow.had == stage.said


def test_what_the_worker_dropped_is_lost_to_all(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.say(b"one")
    follower.ask()
    stage.say(b"two", skipped=1000)
    assert follower.answer() == m.Followed("a", None, 1, [[OUT, 1003, b"two"]])


def test_chunk_that_comes_twice_is_told_once(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.say(b"one")
    follower.ask()
    stage.said[OUT] = 0
    stage.say(b"one, two")
    assert follower.answer() == m.Followed("a", None, 1, [[OUT, 3, b", two"]])


# --- ends -------------------------------------------------------------------------------------------------------


def test_chunk_of_an_attempt_that_is_over_is_refused(stage: Stage) -> None:
    token = stage.token("a")
    stage.ack(stage.runner, "a")
    assert stage.refused(stage.runner.connection, w.Output(token, OUT, 0, b"late")) == "lease_lost"


def test_chunk_on_its_way_is_let_go_when_the_attempt_ends(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.say(b"one")
    request = stage.last_request
    stage.ack(stage.runner, "a")
    assert stage.answered(request) == w.Passed(is_followed=False)
    assert follower.answer() is not None


def supervised() -> tuple[Stage, WorkerPeer]:
    stage = Stage()
    stage.hang_up(stage.runner.connection)
    _, worker = stage.supervised()
    return stage, worker


@pytest.mark.parametrize("follower_first", [False, True])
def test_follower_and_worker_that_come_back_after_a_restart_find_each_other(follower_first: bool) -> None:
    stage, worker = supervised()
    Follower(stage, lossless=True).ask()
    stage.restart()
    held = [[*stage.token("a"), "running"]]
    stage.client = stage.connect()
    stage.follows()
    if not follower_first:
        stage.worker(worker.nonce, ticket=worker.ticket, held=held)
        assert stage.follows() == []
    Follower(stage, lossless=True).ask()
    if follower_first:
        assert stage.follows() == []
        stage.worker(worker.nonce, ticket=worker.ticket, held=held)
    assert stage.follows() == ["block"]


def test_worker_that_comes_back_alone_is_told_again() -> None:
    stage, worker = supervised()
    Follower(stage).ask()
    assert stage.follows() == ["keep"]
    stage.hang_up(worker.connection)
    stage.worker(worker.nonce, ticket=worker.ticket, held=[[*stage.token("a"), "running"]])
    assert stage.follows() == ["keep"]


def test_last_words_are_kept_for_a_while_and_not_for_ever(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.say(b"last words")
    stage.ack(stage.runner, "a")
    stage.pass_time(limits.FOLLOWED_KEPT_MS - 1)
    assert stage.core.statistics()["followed"] == 1
    stage.pass_time(1)
    assert stage.core.statistics()["followed"] == 0
    # It knows which attempt it has had.
    assert follower.ask() == m.Followed("a", "done", 1, [])


def test_job_is_cancelled_with_the_connection_it_is_tied_to(stage: Stage) -> None:
    stage.enqueue("b", "other")
    for id in ("a", "b"):
        connection = stage.connect()
        stage.ask(connection, m.Follow(id, tied=True))
        stage.hang_up(connection)
    assert stage.row("a").cancelling
    assert stage.state("b") == "cancelled"


def test_job_is_left_alone_by_those_it_is_not_tied_to(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.hang_up(follower.connection)
    assert not stage.row("a").cancelling
    stage.nack(stage.runner, "a", Outcome.PERMANENT)
    assert stage.state("a") == "dead"


def test_finished_job_is_not_cancelled_by_a_tie(stage: Stage) -> None:
    connection = stage.connect()
    stage.ask(connection, m.Follow("a", tied=True))
    stage.ack(stage.runner, "a")
    stage.hang_up(connection)
    assert stage.state("a") == "done"


def test_only_so_many_jobs_can_be_followed() -> None:
    stage = Stage()
    for number in range(limits.FOLLOWED_MAX):
        stage.ask(stage.client, m.Follow(f"job-{number}", awaited=True))
    assert stage.refused(stage.client, m.Follow("one more", awaited=True)) == "waits_full"
    stage.hang_up(stage.client)
    assert stage.core.statistics()["followed"] == 0


def test_followers_are_told_when_the_broker_stops(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.event(ev.StopRequested())
    answer = follower.answer()
    assert isinstance(answer, Refusal) and answer.code == "shutting_down"


def test_revived_job_that_waits_is_not_over(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.say(b"one")
    stage.nack(stage.runner, "a", Outcome.PERMANENT)
    stage.ok(stage.client, m.Pause())
    assert stage.ok(stage.client, m.Kick("a")) == m.Counted(1)
    assert follower.ask() is None
    stage.pass_time(limits.FOLLOWED_KEPT_MS + 1)
    assert follower.answer() is None and stage.core.statistics()["followed"] == 1


def test_end_is_told_after_it_is_stored_and_news_at_once(stage: Stage) -> None:
    follower, other = Follower(stage), Follower(stage)
    other.ask()
    now = stage.clock.now()
    output = w.Output(stage.token("a"), OUT, 0, b"one")
    news = stage.core.step(ev.Received(stage.runner.connection, 900, output), now)
    assert [getattr(effect, "now", None) for effect in news] == [True]
    follower.had[OUT], follower.attempt = 3, 1
    assert follower.ask() is None
    end = stage.core.step(ev.Received(stage.runner.connection, 901, w.Ack(stage.token("a"))), now)
    told = [effect for effect in end if getattr(effect, "connection", 0) == follower.connection]
    assert [getattr(effect, "now", None) for effect in told] == [False]


def test_follower_of_a_restarted_broker_keeps_its_attempt(stage: Stage) -> None:
    follower = Follower(stage)
    follower.attempt, follower.had[OUT] = 3, 1000
    assert follower.ask(timeout_ms=0) == m.Followed("a", None, 3, [])


def test_revived_job_is_followed_again(stage: Stage) -> None:
    follower = Follower(stage)
    follower.ask()
    stage.say(b"one")
    stage.nack(stage.runner, "a", Outcome.PERMANENT)
    assert stage.ok(stage.client, m.Kick("a")) == m.Counted(1)
    follower.answer()
    assert follower.ask() is None
    stage.said[OUT] = 0
    stage.say(b"two")
    assert follower.answer() == m.Followed("a", None, 2, [[OUT, 0, b"two"]])
