"""The order within a queue, its lines by kind, and its room."""

import random

from support.core_builders import a_job

from stoker.broker.core.job import Job
from stoker.broker.core.queues import LINE_SLACK, Queue
from stoker.proto.model import State
from stoker.proto.queuerules import QueueRules


def a_queue(*jobs: Job, **rules: int) -> Queue:
    queue = Queue("default", QueueRules(**rules))  # type: ignore[arg-type]  # the limits are ints
    for job in jobs:
        queue.add_ready(job, 0)
    return queue


def drained(queue: Queue, kinds: set[str]) -> list[int]:
    numbers: list[int] = []
    while (job := queue.best(kinds)) is not None:
        queue.remove_ready(job)
        numbers.append(job.number)
    return numbers


def test_lower_priority_runs_first_then_position() -> None:
    queue = a_queue(a_job(1, priority=1), a_job(2, position=9), a_job(3), a_job(4, priority=-1))
    assert drained(queue, {"send"}) == [4, 3, 2, 1]


def test_worker_gets_only_its_kinds_in_the_same_order() -> None:
    queue = a_queue(a_job(1, kind="a"), a_job(2, kind="b"), a_job(3, kind="c"), a_job(4, kind="a"))
    assert drained(queue, {"a", "c", "d", "e", "f"}) == [1, 3, 4]


def test_worker_of_few_kinds_finds_its_job_among_many() -> None:
    queue = a_queue(*(a_job(number, kind=f"kind-{number}") for number in range(1, 50)))
    assert drained(queue, {"kind-30", "kind-7"}) == [7, 30]


def test_queue_has_nothing_for_a_worker_of_other_kinds() -> None:
    assert a_queue(a_job(1)).best({"other", "more"}) is None


def test_job_that_left_from_the_middle_is_passed_over() -> None:
    jobs = [a_job(number) for number in range(1, 5)]
    queue = a_queue(*jobs)
    queue.remove_ready(jobs[1])
    queue.remove_ready(jobs[2])
    assert drained(queue, {"send"}) == [1, 4]


def test_job_that_comes_back_has_its_old_place() -> None:
    first, second = a_job(1), a_job(2)
    queue = a_queue(first, second)
    queue.remove_ready(first)
    queue.add_ready(first, 0)
    assert drained(queue, {"send"}) == [1, 2]


def test_job_that_comes_back_with_another_priority_has_that_one_only() -> None:
    moved, other = a_job(1), a_job(2)
    queue = a_queue(a_job(3, priority=-9), moved, other)
    queue.remove_ready(moved)
    moved.priority = 5
    queue.add_ready(moved, 0)
    assert drained(queue, {"send"}) == [3, 2, 1]


def test_line_forgets_jobs_that_leave_behind_its_head() -> None:
    queue = a_queue(a_job(1))
    coming = a_job(2)
    for _ in range(10 * LINE_SLACK):
        queue.add_ready(coming, 0)
        queue.remove_ready(coming)
    assert drained(queue, {"send"}) == [1]
    assert list(queue.ready_kinds) == []


def test_line_stays_proportional_to_its_jobs() -> None:
    queue, coming = a_queue(a_job(1)), a_job(2)
    for _ in range(10 * LINE_SLACK):
        queue.add_ready(coming, 0)
        queue.remove_ready(coming)
    assert queue.entry_count <= 2 + LINE_SLACK


def test_kind_without_ready_jobs_leaves_nothing_behind() -> None:
    jobs = [a_job(number, kind=f"kind-{number}") for number in range(1, 100)]
    queue = a_queue(*jobs)
    for job in random.Random(1).sample(jobs, len(jobs)):
        queue.remove_ready(job)
    assert (list(queue.ready_kinds), queue.entry_count) == ([], 0)


def test_order_holds_through_any_coming_and_going() -> None:
    dice = random.Random(5)
    jobs = [a_job(number, priority=dice.randrange(3)) for number in range(1, 200)]
    queue, inside = a_queue(), set[int]()
    for _ in range(2000):
        job = dice.choice(jobs)
        if job.number in inside:
            queue.remove_ready(job)
        else:
            queue.add_ready(job, 0)
        inside ^= {job.number}
    expected = sorted((job.priority, job.position, job.number) for job in jobs if job.number in inside)
    assert drained(queue, {"send"}) == [number for _, _, number in expected]


def test_oldest_ready_job_is_the_one_that_became_ready_first() -> None:
    queue = a_queue()
    assert queue.oldest_ready() is None
    for number, since in ((2, 10), (1, 20)):
        queue.add_ready(a_job(number), since)
    oldest = queue.oldest_ready()
    assert oldest is not None
    assert (oldest[0].number, oldest[1]) == (2, 10)


def test_scheduled_ready_and_leased_jobs_take_room() -> None:
    queue = a_queue(jobs_max=4)
    for state in State:
        queue.counts[state] = 1
    assert (queue.live_count, queue.has_room(0)) == (3, True)
    queue.counts[State.LEASED] = 2
    assert not queue.has_room(0)


def test_bytes_take_room_up_to_the_limit_itself() -> None:
    queue = a_queue(bytes_max=10)
    queue.bytes = 4
    assert (queue.has_room(6), queue.has_room(7)) == (True, False)


def test_queue_is_empty_only_if_nothing_is_known_of_it() -> None:
    queue = a_queue()
    assert queue.is_empty
    queue.counts[State.DONE] = 1
    assert not queue.is_empty
    assert queue.is_at_rest


def test_paused_queue_is_not_empty() -> None:
    queue = a_queue()
    queue.paused = True
    assert not (queue.is_empty or queue.is_at_rest)
