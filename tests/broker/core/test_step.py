"""The core as one object: deadlines, look-ups of the past, pruning, restarts, and peers that mean harm."""

import random
from typing import Any

import pytest
from support.core_builders import KIND, TICKET, House, WorkerPeer, a_job, identity_of, rules_of

from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.memory import NUMBERS_RESERVED
from stoker.broker.core.rules import Rules
from stoker.broker.core.step import Core, Want
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto import work as w
from stoker.proto.model import Overflow


def deadline(house: House) -> int:
    return house.core.next_deadline(house.clock.now())


# --- deadlines --------------------------------------------------------------------------------------------


def test_core_without_anything_to_wait_for_sleeps_no_longer_than_the_wall_clock_allows() -> None:
    assert deadline(House()) == limits.WALL_RECHECK_MS


@pytest.mark.parametrize("fields", [{"delay_ms": 700}, {"expires_ms": 700}])
def test_core_wakes_for_a_job(fields: dict[str, Any]) -> None:
    house = House()
    house.enqueue("a", **fields)
    house.clock.pass_time(1)
    assert deadline(house) == 699


def test_core_wakes_for_a_date() -> None:
    house = House()
    house.enqueue("a", run_at_ms=house.clock.now().wall_ms + 700)
    house.clock.set_wall(600)
    assert deadline(house) == 100
    house.clock.set_wall(600)
    assert deadline(house) == 0


@pytest.mark.parametrize("fields", [{"lease_ms": 700}, {"time_limit_ms": 700}])
def test_core_wakes_for_a_lease(fields: dict[str, Any]) -> None:
    house = House()
    house.worker()
    house.enqueue("a", **fields)
    assert deadline(house) == 700


@pytest.mark.parametrize("message", [m.Wait("a", 700), m.Drain(700)])
def test_core_wakes_for_a_request_that_waits(message: Any) -> None:
    house = House()
    house.worker()
    house.enqueue("a")
    house.ask(house.client, message)
    assert deadline(house) == 700


def test_core_wakes_for_an_enqueue_that_waits() -> None:
    house = House(rules_of(jobs_max=1, overflow=Overflow.WAIT))
    house.enqueue("a")
    house.ask(house.client, m.Enqueue("b", KIND, b"", wait_ms=700))
    assert deadline(house) == 700


def test_core_wakes_for_a_reconnect_grace() -> None:
    house = House(Rules(reconnect_grace_ms=700))
    _, worker = house.supervised()
    house.hang_up(worker.connection)
    assert deadline(house) == 700


def test_core_wakes_for_a_supervisors_grace() -> None:
    house = House(Rules(supervisor_grace_ms=700))
    _, worker = house.supervised()
    house.die(worker.connection)
    assert deadline(house) == 700


def test_renewed_lease_is_looked_at_once_too_early_and_then_in_time() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", lease_ms=700)
    house.clock.pass_time(500)
    house.ok(worker.connection, w.Heartbeat([[1, 1]]))
    house.pass_time(200)
    assert (deadline(house), house.state("a")) == (500, "leased")


def test_core_at_rest_is_not_woken_again() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", lease_ms=700)
    house.ack(worker, "a")
    house.pass_time(700)
    assert deadline(house) == limits.WALL_RECHECK_MS


def test_deadline_that_has_passed_is_now() -> None:
    house = House()
    house.enqueue("a", delay_ms=1)
    house.clock.pass_time(50)
    assert deadline(house) == 0


@pytest.mark.parametrize("back", [(-1, 0), (0, -1)])
def test_time_never_goes_back(back: tuple[int, int]) -> None:
    house = House()
    now = house.clock.now()
    with pytest.raises(AssertionError, match="time went back"):
        house.core.step(ev.TimePassed(), ev.Now(now.mono_ms + back[0], now.boot_ms + back[1], now.wall_ms))


# --- look-ups ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "wants"),
    [
        (m.Enqueue("a", KIND, b""), [Want("a")]),
        (m.Show("a", True), [Want("a", history=True, payload=True)]),
        (m.Show("live"), [Want("live", history=True)]),
        (m.Wait("a"), [Want("a", history=True)]),
        (m.Why("a"), [Want("a")]),
        (m.Cancel("a"), [Want("a")]),
        (m.Kick("a"), [Want("a")]),
        (m.Drop("a"), [Want("a")]),
        (m.Kick(queue="mail", limit=3), [Want(queue="mail", limit=3)]),
        (m.Drop(), []),
        (m.Status(), []),
        (w.Ack([1, 1]), []),
        *(
            (message, [])
            for message in (
                m.Enqueue("live", KIND, b""),
                m.Wait("live"),
                m.Why("live"),
                m.Cancel("live"),
                m.Kick("live"),
                m.Drop("live"),
            )
        ),
    ],
)
def test_core_wants_to_know_what_it_does_not_hold(message: Any, wants: list[Want]) -> None:
    house = House()
    house.enqueue("live")
    assert list(house.core.wants(message)) == wants


def comes_back(house: House, event: ev.Received) -> bool:
    effects = house.core.step(event, house.clock.now())
    return effects == [fx.LookAgain(event)]


@pytest.mark.parametrize(
    "message",
    [
        m.Enqueue("a", KIND, b""),
        m.Show("a"),
        m.Wait("a"),
        m.Why("a"),
        m.Cancel("a"),
        m.Kick("a"),
        m.Drop("a"),
    ],
)
def test_look_up_of_a_job_that_left_memory_since_is_made_again(message: Any) -> None:
    house = House()
    house.enqueue("a")
    event = house.looked_up(message)
    house.cancel("a")
    assert comes_back(house, event)


@pytest.mark.parametrize("message", [m.Kick("a"), m.Drop("a"), m.Kick(queue="default"), m.Show("a")])
def test_look_up_of_a_dead_job_that_was_dropped_since_is_made_again(message: Any) -> None:
    house = House(rules_of(jobs_max=0, overflow=Overflow.DEAD))
    house.enqueue("a")
    event = house.looked_up(message)
    house.ok(house.client, m.Drop("a"))
    assert comes_back(house, event)


def test_look_up_of_nothing_is_made_again_if_a_dead_letter_took_the_id() -> None:
    house = House(rules_of(jobs_max=0, overflow=Overflow.DEAD))
    event = house.looked_up(m.Enqueue("a", KIND, b""))
    house.enqueue("a")
    assert comes_back(house, event)


def test_job_that_was_kicked_since_is_not_kicked_twice() -> None:
    house = House(rules_of(jobs_max=0, overflow=Overflow.DEAD))
    house.enqueue("a")
    event = house.looked_up(m.Kick(queue="default"))
    house.ok(house.client, m.Kick("a"))
    house.event(event)
    assert house.answers[house.client, 900] == m.Counted(0)


def test_look_up_of_a_job_that_came_into_memory_since_is_overridden_by_memory() -> None:
    house = House()
    event = house.looked_up(m.Enqueue("a", KIND, b"payload"))
    answer = house.enqueue("a")
    house.event(event)
    assert house.answers[house.client, 900] == answer


def test_departures_are_remembered_until_no_look_up_can_need_them() -> None:
    house = House()
    house.enqueue("a")
    house.enqueue("b")
    house.step(ev.Received(house.client, 900, m.Cancel("a")))
    asked_at = house.core.steps
    house.step(ev.Received(house.client, 901, m.Cancel("b")))
    house.core.trim_departed(asked_at)
    assert house.core.statistics()["departed_ids"] == 1
    house.core.trim_departed(house.core.steps)
    assert house.core.statistics()["departed_ids"] == 0


# --- retention -----------------------------------------------------------------------------------------------


def a_row(house: House, id: str) -> tuple[int, str, bytes, bool, str, str, int]:
    job = house.row(id)
    return (
        job.number, job.id, job.body_hash, job.id_by_caller, job.queue, job.state.value, job.created_boot_ms
    )  # fmt: skip


def test_pruned_row_is_deleted_and_its_id_remembered() -> None:
    house = House()
    house.enqueue("a")
    house.enqueue("b", fresh=True)
    for id in "ab":
        house.cancel(id)
    house.clock.pass_time(limits.ID_KEPT_LIBRARY_MS)
    house.event(ev.PruneFound([a_row(house, "a"), a_row(house, "b")], house.core.steps))
    assert (house.rows(), house.core.statistics()["ids_kept"]) == ([], 1)
    assert house.core.statistics()["queues"] == 0


def test_row_that_was_kicked_since_is_not_pruned() -> None:
    house = House(rules_of(jobs_max=0, overflow=Overflow.DEAD))
    house.enqueue("a")
    found = ev.PruneFound([a_row(house, "a")], house.core.steps)
    house.ok(house.client, m.Kick("a"))
    house.event(found)
    assert house.state("a") == "ready"


def test_row_that_was_dropped_since_is_not_pruned_twice() -> None:
    house = House()
    house.enqueue("a")
    house.cancel("a")
    found = ev.PruneFound([a_row(house, "a")], house.core.steps)
    house.step(ev.Received(house.client, 900, m.Drop("a"), {"a": house.journal.find("a")}, house.core.steps))
    house.event(found)
    assert (house.core.statistics()["queues"], house.core.statistics()["ids_kept"]) == (0, 1)


def test_forgotten_ids_make_room_for_others() -> None:
    house = House()
    house.enqueue("a")
    house.cancel("a")
    house.ok(house.client, m.Drop("a"))
    house.event(ev.IdsForgotten(1))
    assert house.core.statistics()["ids_kept"] == 0


# --- restarts -------------------------------------------------------------------------------------------------


def in_every_state() -> tuple[House, WorkerPeer]:
    house = House()
    house.supervisor(kinds=[{"kind": KIND, "attempts_max": 2}], workers=["nonce-w1"])
    worker = house.worker(ticket=TICKET)
    for id in ("done", "dead", "retried", "leased", "ready-1", "ready-2"):
        house.enqueue(id)
    house.enqueue("urgent", priority=-1, queue="mail")
    house.enqueue("delayed", delay_ms=5000)
    house.ok(house.client, m.Pause("video"))
    house.ack(worker, "done")
    while house.state("leased") != "leased":
        house.nack(worker, next(job.id for job in house.rows() if job.state == "leased"), "permanent")
    house.cancel("ready-2")
    return house, worker


def compared(house: House) -> dict[str, Any]:
    status = house.status()
    del status["epoch"], status["pools"], status["workers"], status["warnings"]
    return status


def test_restored_core_has_the_status_of_the_one_that_lived() -> None:
    house, _ = in_every_state()
    before = compared(house)
    house.restart()
    assert compared(house) == before


def test_restored_core_hands_out_in_the_same_order() -> None:
    orders: list[list[str]] = []
    for restarts in (False, True):
        house, worker = in_every_state()
        if restarts:
            house.restart()
            house.client = house.connect()
            house.supervisor(workers=["nonce-w1"])
            worker = house.worker(ticket=TICKET, held=[[*house.token("leased"), "running"]])
        house.granted()
        while leased := [job.id for job in house.rows() if job.state == "leased"]:
            house.ack(worker, leased[0])
        house.pass_time(5000)
        orders.append(house.granted())
    assert orders[0] == orders[1]


def test_worker_of_many_slots_is_restored_with_all_its_jobs() -> None:
    house = House()
    house.worker(slots=2)
    house.enqueue("a")
    house.enqueue("b")
    house.restart()
    (shown,) = house.status()["workers"]
    assert (shown["jobs"], shown["state"]) == (["a", "b"], "disconnected")


def test_restored_core_goes_on_counting() -> None:
    house = House()
    house.enqueue("a")
    house.restart()
    house.client = house.connect()
    # Behind what was reserved on disk: no number is given twice.
    assert house.enqueue("b").number == 1 + NUMBERS_RESERVED + 1


def test_restored_job_that_has_expired_meanwhile_is_dead_at_once() -> None:
    house = House()
    house.enqueue("a", expires_ms=100)
    house.clock.pass_time(100)
    house.restart()
    house.client = house.connect()
    assert house.state("a") == "dead"


def test_queue_that_has_no_rows_any_more_is_not_restored() -> None:
    core = Core(Rules(), epoch=2, now=ev.Now(0, 0, 0), chance=lambda: 0.0)
    core.restore(
        jobs=[a_job(queue="mail")],
        sequence=1,
        finished_counts={("default", "done"): 0},
        kinds={},
        paused=[],
        ids_kept=0,
        ended=[],
    )
    assert list(core.status()["queues"]) == ["mail"]


# --- peers that mean harm ----------------------------------------------------------------------------------------


class Vandal:
    """Says anything that the wire lets through, on any connection, at any time."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.house = House(
            Rules(queues={"small": rules_of(jobs_max=2, overflow=Overflow.WAIT).queue_default}), 0.5
        )
        self.connections = [self.house.client]

    def token(self) -> list[int]:
        return [self.dice.choice([0, 1, 1, 1, 2, 2**53]), self.dice.choice([*range(30), 2**53])]

    def name(self, *names: str) -> str | None:
        return self.dice.choice([*names, None])

    def nonce(self) -> str:
        return f"nonce-w{self.dice.randrange(5)}"

    def ticket(self) -> bytes:
        return self.dice.choice([b"", TICKET, b"another ticket.."])

    def client_message(self) -> Any:
        dice, id = self.dice, self.dice.choice("abcdefgh")
        queue = self.name("small", "default")
        number = self.dice.choice([None, 0, 1, 5000, limits.DURATION_MS_MAX])
        return dice.choice(
            [
                m.Enqueue(id, dice.choice("xyz"), dice.choice([b"", b"p" * 99]), dice.random() < 0.3, queue,
                          dice.choice([None, -3, 3]), number, None, dice.choice([None, 1, 900]),
                          wait_ms=number, lease_ms=dice.choice([None, 100]),
                          time_limit_ms=dice.choice([None, 1, 500])),
                m.Cancel(id), m.Kick(id), m.Kick(queue=queue), m.Drop(id), m.Drop(queue=queue), m.Show(id),
                m.Why(id), m.Wait(id, number), m.Pause(queue), m.Resume(queue), m.Resume(), m.Status(),
                m.Drain(number), m.Hello(1, "admin"),
            ]
        )  # fmt: skip

    def worker_message(self) -> Any:
        dice, token = self.dice, self.token()
        held = [[*self.token(), dice.choice(["running", "unstarted", "finished"])] for _ in range(3)]
        identity = dice.choice([(), identity_of(self.nonce()), identity_of(self.nonce())])
        return dice.choice(
            [
                m.Hello(1, "work", "", identity, self.ticket(), dice.choices("xyz", k=2), dice.choice([0, 1, 3]),
                        held + held),
                w.Ack(token, b"r"), w.Ack(token), w.Nack(token, dice.choice(["error", "cancelled", "timeout"]), "x"),
                w.Release(token, dice.choice(["not_started", "released", "shutdown"])),
                w.Heartbeat([token, token, self.token()]), w.Heartbeat((), [self.nonce(), self.nonce()]),
                w.Exited(self.nonce(), dice.choice([[], [token]]), None, dice.choice([None, 9]),
                         dice.choice([None, token, self.token()]), dice.random() < 0.2),
                w.Pool(1, "pool", dice.choice([TICKET, b"another ticket.."]), identity_of(self.nonce()),
                       [{"kind": kind, "queue": self.name("small")} for kind in dice.choices("xyz", k=2)],
                       [self.nonce()]),
            ]
        )  # fmt: skip

    def act(self) -> None:
        house, dice = self.house, self.dice
        connection = dice.choice(self.connections)
        what = dice.random()
        if what < 0.4:
            house.ask(connection, self.client_message())
        elif what < 0.8:
            house.ask(connection, self.worker_message())
        elif what < 0.86:
            self.connections.append(house.connect())
        elif what < 0.9:
            house.event(ev.PeerExited(connection) if dice.random() < 0.5 else ev.Disconnected(connection))
        elif what < 0.98:
            house.pass_time(dice.choice([0, 1, 100, 5000, 40_000]))
        else:
            self.upset()

    def upset(self) -> None:
        house = self.house
        match self.dice.randrange(5):
            case 0:
                house.restart()
                self.connections = [house.connect()]
            case 1:
                house.event(ev.Stalled(3000))
            case 2:
                house.event(ev.StorageChanged(self.dice.random() < 0.5))
            case 3:
                house.event(ev.HeldUp([message for _, message in house.pushes[-self.dice.randrange(1, 9) :]]))
            case _:
                house.event(ev.OwnerGone("/".join(map(str, identity_of(self.nonce())))))


@pytest.mark.parametrize("run", range(4))
def test_no_peer_can_make_the_core_raise_or_miscount(seed: int, run: int) -> None:
    vandal = Vandal(random.Random(seed + run))
    for _ in range(120):
        vandal.act()
    vandal.house.check()


@pytest.mark.slow
@pytest.mark.parametrize("run", range(40))
def test_no_peer_can_make_the_core_raise_or_miscount_in_the_long_run(seed: int, run: int) -> None:
    vandal = Vandal(random.Random(seed + 1000 + run))
    for _ in range(600):
        vandal.act()
    vandal.house.check()
