"""Who is connected: identities, nonces, idle workers, and what is forgotten when they end."""

from support.core_builders import TICKET, House, identity_of

from stoker.broker.core.workers import ENDED_KEPT, Registry, Worker, identity_text


def a_worker(nonce: str, kinds: str = "send", slots: int = 1, ticket: bytes = TICKET) -> Worker:
    identity = identity_text(identity_of(nonce))
    return Worker(identity, nonce, nonce, 100, ticket, frozenset(kinds.split()), slots, connection=1)


def a_registry(*workers: Worker) -> Registry:
    registry = Registry()
    for worker in workers:
        registry.add_worker(worker)
    return registry


def test_identity_is_the_text_that_the_journal_keeps() -> None:
    assert identity_text(identity_of("nonce-w1")) == "boot-id-1/1/100/5/nonce-w1"


def test_idle_worker_is_found_by_any_of_its_kinds() -> None:
    worker = a_worker("nonce-w1", "send resize")
    registry = a_registry(worker)
    assert registry.idle_for("resize", "mail") is registry.idle_for("send", "mail") is worker
    assert registry.idle_for("other", "mail") is None


def test_dead_or_disconnected_worker_has_no_free_slots() -> None:
    dead, absent = a_worker("nonce-w1"), a_worker("nonce-w2")
    dead.dead, absent.connection = True, None
    assert (dead.free_slots, absent.free_slots, a_registry(dead, absent).idle()) == (0, 0, [])


def test_worker_leaves_the_idle_when_it_is_forgotten() -> None:
    worker = a_worker("nonce-w1")
    registry = a_registry(worker)
    registry.forget_worker(worker)
    assert (registry.idle(), registry.by_nonce(TICKET, "nonce-w1"), registry.workers) == ([], None, {})


def test_worker_that_changes_its_kinds_is_idle_for_the_new_ones_only() -> None:
    worker = a_worker("nonce-w1")
    registry = a_registry(worker)
    registry.renew(worker, TICKET, frozenset({"resize"}), None, 1, 0)
    assert (registry.idle_for("send", "mail"), registry.idle_for("resize", "mail")) == (None, worker)


def test_nonce_counts_only_under_the_ticket_that_was_shown() -> None:
    registry = a_registry(a_worker("nonce-w1"))
    assert registry.by_nonce(b"another supervisor", "nonce-w1") is None


def test_worker_without_supervisor_is_not_found_by_nonce() -> None:
    registry = a_registry(a_worker("nonce-w1", ticket=b""))
    assert registry.by_nonce(b"", "nonce-w1") is None


def test_known_kinds_are_those_of_connected_workers() -> None:
    absent = a_worker("nonce-w2", "resize")
    absent.connection = None
    assert a_registry(a_worker("nonce-w1"), absent).known_kinds() == {"send"}


def test_memory_of_ended_tokens_is_bounded_and_keeps_the_newest() -> None:
    worker = a_worker("nonce-w1", slots=2)
    for counter in range(1000):
        worker.remember_ended((1, counter), "ack")
    assert list(worker.ended) == [(1, counter) for counter in range(998 - ENDED_KEPT, 1000)]


# --- nothing stays ------------------------------------------------------------------------------------------


def test_many_workers_that_come_and_go_leave_nothing_behind() -> None:
    house = House(checked=False)
    before = house.core.statistics()
    for number in range(300):
        worker = house.worker(f"nonce-{number:04}")
        house.hang_up(worker.connection)
    assert house.core.statistics() == before


def test_workers_that_had_jobs_are_forgotten_after_the_grace() -> None:
    house = House(checked=False)
    for number in range(50):
        worker = house.worker(f"nonce-{number:04}")
        house.enqueue(f"job-{number}")
        house.ack(worker, f"job-{number}")
        house.hang_up(worker.connection)
    assert house.core.statistics()["workers"] == 50
    house.pass_time(10_000)
    assert house.core.statistics()["workers"] == 0


def test_supervisors_that_come_and_go_leave_nothing_behind() -> None:
    house = House(checked=False)
    before = house.core.statistics()
    for number in range(100):
        ticket = f"ticket {number:09}".encode()
        supervisor = house.supervisor(ticket=ticket, kinds=[])
        worker = house.worker(f"nonce-{number:04}", ticket=ticket)
        house.die(supervisor)
        house.die(worker.connection)
    assert house.core.statistics() == before


def test_supervisor_is_forgotten_with_its_last_worker_even_after_its_grace() -> None:
    house = House()
    supervisor, worker = house.supervised()
    house.hang_up(supervisor)
    house.pass_time(30_000)
    assert house.core.statistics()["pools"] == 1
    house.ack(worker, "a")
    house.die(worker.connection)
    assert house.core.statistics()["pools"] == 0
