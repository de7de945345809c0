"""Jobs sent ahead: to whom, of which kinds, and how they come back when one of them is slow."""

from collections.abc import Callable

import pytest
from support.core_builders import KIND, TICKET, House, WorkerPeer, identity_of

from stoker.broker.core import events as ev
from stoker.broker.core.prefetch import AGAIN_MS, QUICK_MS, SLOW_MS
from stoker.broker.core.rules import Rules
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto import work as w

RUNS = Rules().quick_runs
AHEAD = limits.PREFETCH_MAX


class Pool(House):
    """A supervisor with one worker that takes jobs ahead; jobs are called after their numbers."""

    def __init__(self, *, prefetch: int = AHEAD, slots: int = 1, ticket: bytes = TICKET) -> None:
        super().__init__()
        self.pool_connection = self.supervisor(workers=["nonce-w1", "nonce-w2"])
        self.hello = m.Hello(
            1, "work", "w", identity_of("nonce-w1"), ticket, [KIND, "other"], slots, prefetch=prefetch
        )
        self.come_back()
        self.asked = 0

    def come_back(self, *held: list[object]) -> None:
        """The worker says hello, with what it holds."""
        connection = self.connect()
        welcome = self.ok(connection, self.hello._replace(held=held))
        self.peer = WorkerPeer(connection, "nonce-w1", self.hello.ticket, welcome)

    def put(self, count: int, kind: str = KIND) -> None:
        """So many jobs more."""
        for _ in range(count):
            self.asked += 1
            self.enqueue(f"{self.asked:04}", kind)

    def run(self, count: int, *, duration_ms: int = 0) -> None:
        """The worker finishes so many, in the order in which it got them."""
        for token in [list(lease) for lease in self.leases()[:count]]:
            self.ok(self.peer.connection, w.Ack(token, duration_ms=duration_ms))

    def leases(self) -> list[tuple[int, int]]:
        """Tokens of the jobs that somebody holds, oldest first."""
        return sorted(job.token for job in self.rows() if job.state == "leased")

    def warm_up(self, kind: str = KIND, *, duration_ms: int = 0) -> None:
        """Let a kind show that it is quick."""
        for _ in range(RUNS):
            self.put(1, kind)
            self.run(1, duration_ms=duration_ms)
        self.pushed(object)

    def recalls(self) -> list[list[int]]:
        """How far was recalled since the last call."""
        return [list(recall.through) for _, recall in self.pushed(w.Recall)]

    def give_back(self, started: int | None = None) -> None:
        """The supervisor's answer: the lease of that place began last."""
        leases = self.leases()
        token = None if started is None else list(leases[started])
        self.ok(self.pool_connection, w.Recalled("nonce-w1", list(leases[-1]), token))


@pytest.fixture
def pool() -> Pool:
    """The kind is quick; one job runs, and as many as may be are ahead."""
    pool = Pool()
    pool.warm_up()
    pool.put(AHEAD + 3)
    pool.run(1)
    return pool


def test_worker_of_quick_jobs_gets_several_at_once(pool: Pool) -> None:
    assert len(pool.leases()) == 1 + AHEAD
    assert pool.granted() == [f"{RUNS + place:04}" for place in range(1, AHEAD + 3)]


def test_they_are_sent_again_in_bundles(pool: Pool) -> None:
    pool.put(20)
    pool.pushed(object)
    pool.run(AHEAD // 2 - 1)
    assert pool.granted() == []
    pool.run(1)
    assert len(pool.granted()) == AHEAD // 2
    assert len(pool.leases()) == 1 + AHEAD


@pytest.mark.parametrize("duration_ms", [0, QUICK_MS])
def test_quick_is_what_was_so_often_enough(duration_ms: int) -> None:
    pool = Pool()
    pool.put(RUNS + 5)
    for left in range(RUNS - 1, 0, -1):
        pool.run(1, duration_ms=duration_ms)
        assert len(pool.leases()) == 1, left
    pool.run(1, duration_ms=duration_ms)
    assert len(pool.leases()) > 1


@pytest.mark.parametrize("how", ["slow", "failed"])
def test_one_attempt_that_is_not_quick_ends_it(pool: Pool, how: str) -> None:
    pool.put(20)
    first = list(pool.leases()[0])
    if how == "slow":
        pool.ok(pool.peer.connection, w.Ack(first, duration_ms=QUICK_MS + 1))
    else:
        pool.ok(pool.peer.connection, w.Nack(first, "error", "no such host"))
    pool.run(AHEAD)
    assert len(pool.leases()) == 1


def test_nothing_is_sent_ahead_of_another_kind_or_behind_one() -> None:
    pool = Pool()
    pool.warm_up()
    pool.put(1, "other")
    pool.put(5)
    assert len(pool.leases()) == 1
    pool.run(1)
    assert len(pool.leases()) == 4
    pool.put(2, "other")
    pool.put(9)
    pool.run(5)
    assert len(pool.leases()) == 1


def test_enough_is_left_for_every_worker() -> None:
    pool = Pool()
    pool.warm_up()
    pool.put(4)
    pool.run(1)
    # One worker is known, so one job stays.
    assert len(pool.leases()) == 2
    assert pool.status()["queues"]["default"]["ready"] == 1


@pytest.mark.parametrize(
    ("pool", "slots"),
    [
        pytest.param(lambda: Pool(prefetch=0), 1, id="says none"),
        pytest.param(lambda: Pool(slots=2), 2, id="two slots"),
        pytest.param(lambda: Pool(ticket=b""), 1, id="raw"),
    ],
)
def test_others_get_what_they_can_run(pool: Callable[[], Pool], slots: int) -> None:
    house = pool()
    house.put(RUNS + 20)
    house.run(RUNS + 4)
    assert len(house.leases()) == slots


def test_nothing_is_sent_ahead_while_nobody_could_take_it_back() -> None:
    pool = Pool()
    pool.warm_up()
    pool.put(9)
    pool.hang_up(pool.pool_connection)
    pool.run(1)
    assert len(pool.leases()) == 1


# --- time ------------------------------------------------------------------------------------------------


def test_time_limit_begins_when_the_job_before_it_ends() -> None:
    pool, limit_ms = Pool(), SLOW_MS - 10
    pool.warm_up()
    pool.put(1)
    for name in "abcd":
        pool.enqueue(name, time_limit_ms=limit_ms)
    pool.run(1)
    # `a` runs, `b` and `c` wait for longer than they may run.
    pool.pass_time(limit_ms - 1)
    pool.run(1)
    pool.pass_time(limit_ms - 1)
    pool.run(1)
    assert pool.state("c") == "leased"
    pool.pass_time(limit_ms - 1)
    assert pool.pushed(w.Kill) == []
    pool.pass_time(1)
    assert [kill.reason for _, kill in pool.pushed(w.Kill)] == ["timeout"]


def test_what_waits_behind_a_slow_job_is_recalled_and_runs_elsewhere(pool: Pool) -> None:
    pool.pass_time(SLOW_MS - 1)
    assert pool.recalls() == []
    pool.pass_time(1)
    (through,) = pool.recalls()
    assert through == list(pool.leases()[-1])
    pool.give_back(started=0)
    assert len(pool.leases()) == 1
    other = pool.worker("nonce-w2", ticket=TICKET)
    assert other.connection in {connection for connection, _ in pool.pushed(w.Job)}


def test_recalled_job_was_no_attempt(pool: Pool) -> None:
    last = next(job.id for job in pool.rows() if job.token == pool.leases()[-1])
    pool.pass_time(SLOW_MS)
    pool.give_back(started=0)
    assert (pool.row(last).attempt, pool.row(last).state, pool.outcomes(last)) == (0, "ready", [])


def test_what_had_begun_by_then_stays(pool: Pool) -> None:
    pool.pass_time(SLOW_MS)
    pool.give_back(started=3)
    assert len(pool.leases()) == 4
    pool.run(4)
    assert pool.status()["queues"]["default"]["leased"] == 1


def test_worker_that_runs_nothing_had_begun_nothing(pool: Pool) -> None:
    pool.pass_time(SLOW_MS)
    leases = pool.leases()
    pool.give_back(started=None)
    # Its slot is free, so it gets one of them again, under another token.
    (again,) = pool.leases()
    assert again > leases[-1]


def test_recall_is_said_again_until_it_is_answered(pool: Pool) -> None:
    pool.pass_time(SLOW_MS)
    assert len(pool.recalls()) == 1
    pool.pass_time(AGAIN_MS - 1)
    assert pool.recalls() == []
    pool.pass_time(1)
    assert len(pool.recalls()) == 1
    pool.give_back(started=0)
    pool.pass_time(AGAIN_MS)
    assert pool.recalls() == []


def test_slow_job_gets_no_more_behind_it_and_its_kind_has_to_show_itself_again(pool: Pool) -> None:
    pool.pass_time(SLOW_MS)
    pool.give_back(started=0)
    pool.run(1)
    assert len(pool.leases()) == 1
    pool.run(1)
    assert len(pool.leases()) == 1


@pytest.mark.parametrize("event", [ev.Stalled(SLOW_MS), ev.HeldUp([])], ids=["stall", "slow disk"])
def test_broker_that_was_late_itself_takes_nobody_for_slow(pool: Pool, event: ev.Event) -> None:
    pool.clock.pass_time(SLOW_MS)
    pool.event(event)
    pool.event(ev.TimePassed())
    assert pool.recalls() == []
    pool.pass_time(SLOW_MS)
    assert len(pool.recalls()) == 1


# --- ends --------------------------------------------------------------------------------------------------


def test_worker_that_dies_gives_back_what_had_not_begun(pool: Pool) -> None:
    first, *_, last = [next(job.id for job in pool.rows() if job.token == token) for token in pool.leases()]
    running = list(pool.leases()[0])
    pool.die(pool.peer.connection)
    pool.ok(pool.pool_connection, w.Exited("nonce-w1", [running], None, 9))
    assert (pool.outcomes(first), pool.outcomes(last)) == (["crash"], [])
    assert pool.row(last).attempt == 0


def test_end_that_was_read_is_not_one_of_several_that_ran(pool: Pool) -> None:
    over, running, *_ = pool.leases()
    pool.run(1)
    pool.die(pool.peer.connection)
    pool.ok(pool.pool_connection, w.Exited("nonce-w1", [list(over), list(running)], None, 9))
    crashed = next(job for job in pool.rows() if "crash" in job.outcome)
    assert (crashed.suspect, crashed.crashes) == (False, 1)


def test_cancel_of_a_job_ahead_takes_it_back_before_it_begins(pool: Pool) -> None:
    last = next(job.id for job in pool.rows() if job.token == pool.leases()[-1])
    assert pool.cancel(last) == "cancelling"
    assert len(pool.recalls()) == 1
    pool.give_back(started=0)
    assert (pool.state(last), pool.outcomes(last)) == ("cancelled", [])


def test_cancel_of_a_job_ahead_that_has_begun_meanwhile_ends_its_process(pool: Pool) -> None:
    second = next(job.id for job in pool.rows() if job.token == pool.leases()[1])
    pool.cancel(second)
    pool.give_back(started=1)
    assert pool.pushed(w.Kill) == []
    pool.run(1)
    pool.event(ev.TimePassed())
    assert [kill.reason for _, kill in pool.pushed(w.Kill)] == ["cancelled"]


def test_worker_gives_back_by_itself_what_it_was_told_is_recalled(pool: Pool) -> None:
    pool.pass_time(SLOW_MS)
    last = next(job.id for job in pool.rows() if job.token == pool.leases()[-1])
    pool.ok(pool.peer.connection, w.Release(list(pool.leases()[-1]), "not_started"))
    assert (pool.state(last), pool.row(last).attempt) == ("ready", 0)


def test_connection_that_ends_gives_everything_back_but_what_runs(pool: Pool) -> None:
    running, *_, last = pool.leases()
    pool.hang_up(pool.peer.connection)
    pool.come_back([*running, "running"])
    assert pool.leases()[0] == running
    assert all(token > last for token in pool.leases()[1:])


def test_nothing_is_sent_ahead_behind_a_job_that_has_run_for_a_while() -> None:
    pool = Pool()
    pool.warm_up()
    pool.put(1)
    pool.run(1)
    pool.put(9)
    running = pool.leases()[0]
    pool.clock.pass_time(SLOW_MS // 2 + 1)
    pool.hang_up(pool.peer.connection)
    pool.come_back([*running, "running"])
    assert pool.leases() == [running]


def test_job_ahead_says_why_it_has_not_begun(pool: Pool) -> None:
    last = next(job.id for job in pool.rows() if job.token == pool.leases()[-1])
    assert "sent ahead" in pool.why(last)


def test_recalled_of_an_unknown_worker_changes_nothing_and_of_no_supervisor_is_refused(pool: Pool) -> None:
    before = pool.leases()
    message = w.Recalled("nonce-w9", [limits.INTEGER_MAX, 0])
    assert isinstance(pool.ok(pool.pool_connection, message), m.Done)
    assert pool.refused(pool.client, message) == "wrong_state"
    assert pool.leases() == before
