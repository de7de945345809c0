"""Indexes and batches of what the core holds."""

from support.core_builders import House, a_job

from stoker.broker.core.events import Now
from stoker.broker.core.job import COLUMNS
from stoker.broker.core.lifecycle import Command
from stoker.broker.core.memory import NUMBERS_RESERVED, POLICIES_KEPT, Memory
from stoker.broker.core.rules import Rules
from stoker.broker.core.timers import SWEEP_SLACK
from stoker.proto import messages as m
from stoker.proto.model import State

STATE = COLUMNS.index("state")


def a_memory() -> Memory:
    return Memory(Rules(), 1, Now(0, 0, 0))


def test_batch_has_only_the_last_image_of_a_job() -> None:
    memory, job = a_memory(), a_job()
    memory.create(job, b"payload")
    memory.move(job, Command.GRANTED)
    changes = memory.take_changes()
    assert [image[STATE] for image in changes.images] == ["leased"]
    assert changes.payloads == [(1, b"payload")]


def test_batch_is_taken_once() -> None:
    memory = a_memory()
    memory.create(a_job(), b"payload")
    assert memory.take_changes()
    assert not memory.take_changes()


def test_numbers_are_reserved_on_disk_before_any_of_them_is_shown() -> None:
    memory = a_memory()
    memory.restore_sequence(7)
    assert memory.take_changes().sequence is None
    assert memory.next_number() == 8
    reserved = memory.take_changes().sequence
    assert reserved == 8 + NUMBERS_RESERVED
    while memory.sequence < reserved:
        memory.next_number()
        assert memory.take_changes().sequence is None
    assert memory.next_number() == reserved + 1
    assert memory.take_changes().sequence == reserved + 1 + NUMBERS_RESERVED


def test_image_is_taken_when_the_batch_closes() -> None:
    memory, job = a_memory(), a_job()
    memory.create(job, b"payload")
    changes = memory.take_changes()
    memory.move(job, Command.GRANTED)
    assert changes.images[0][STATE] is State.READY


def test_finished_job_leaves_memory_and_is_noted() -> None:
    memory, job = a_memory(), a_job()
    memory.create(job, b"payload")
    memory.steps = 5
    memory.move(job, Command.CANCELLED)
    assert (memory.jobs, memory.by_id, memory.departed) == ({}, {}, {"job-1": 5})


def test_id_that_departs_again_is_noted_behind_all_others() -> None:
    memory = a_memory()
    for step, id in enumerate(("a", "b", "a")):
        memory.steps = step
        memory.delete(1, id, b"", "default", State.DEAD, 0)
    assert list(memory.departed.items()) == [("b", 1), ("a", 2)]


def test_policies_of_many_kinds_are_not_all_kept() -> None:
    memory = a_memory()
    memory.declare_kind("send", "pool", {"lease_ms": 700})
    for number in range(POLICIES_KEPT + 10):
        memory.policy(a_job(kind=f"kind-{number}"))
    assert memory.policy(a_job()).lease_ms == 700
    assert memory.policies_kept <= POLICIES_KEPT


def test_policy_follows_a_new_declaration() -> None:
    memory = a_memory()
    for lease_ms in (700, 900):
        memory.declare_kind("send", "pool", {"lease_ms": lease_ms})
        assert memory.policy(a_job()).lease_ms == lease_ms


# --- names and kinds that were used once ---------------------------------------------------------------


def test_many_queues_and_kinds_leave_memory_with_their_last_job() -> None:
    house = House(checked=False)
    before = house.core.statistics()
    for number in range(100):
        house.enqueue(f"job-{number}", f"kind-{number}", queue=f"queue-{number}")
        house.cancel(f"job-{number}")
        house.ok(house.client, m.Drop(f"job-{number}"))
    after = house.core.statistics()
    assert after | {"ids_kept": 0} == before


def test_unresolved_kinds_leave_memory_with_their_last_job() -> None:
    house = House(checked=False)
    for number in range(50):
        house.enqueue(f"job-{number}", f"kind-{number}")
    assert house.core.statistics()["unresolved_kinds"] == 50
    for number in range(50):
        house.cancel(f"job-{number}")
    assert house.core.statistics()["unresolved_kinds"] == 0


def test_second_job_of_an_unresolved_kind_stays_when_the_first_leaves() -> None:
    house = House()
    for id in "ab":
        house.enqueue(id)
    house.cancel("a")
    assert house.core.statistics()["unresolved_kinds"] == 1


def test_pause_of_an_unknown_queue_ends_with_its_resume() -> None:
    house = House()
    house.ok(house.client, m.Pause("nobody"))
    assert house.core.statistics()["queues"] == 1
    house.ok(house.client, m.Resume("nobody"))
    assert house.core.statistics()["queues"] == 0


def test_timers_of_a_job_that_cycles_do_not_pile_up() -> None:
    memory, job = a_memory(), a_job(expires_boot_ms=10**9)
    memory.create(job, b"payload")
    for _ in range(SWEEP_SLACK):
        for command in (Command.GRANTED, Command.RETURNED, Command.GRANTED, Command.FAILED, Command.DUE):
            memory.move(job, command)
    memory.take_changes()
    assert len(memory.expiry) == 1
