"""Whose word counts for a job: its enqueue's, its kind's, its queue's, or the default."""

from support.core_builders import a_job, a_policy

from stoker.broker.core.rules import Policy, Rules, own_policy, settle
from stoker.proto import limits
from stoker.proto.queuerules import QueueRules

MAIL = Rules(queues={"mail": QueueRules(jobs_max=3, policy={"lease_ms": 2000, "attempts_max": 2})})


def test_queue_without_rules_of_its_own_has_the_default_ones() -> None:
    assert (MAIL.queue("mail").jobs_max, MAIL.queue("other").jobs_max) == (3, 1_000_000)


def test_default_counts_where_nobody_says() -> None:
    assert MAIL.policy({}, "other") == Policy(5, 3, 3_600_000, 60_000, 5000, 3_600_000)


def test_queue_counts_over_the_default() -> None:
    assert MAIL.policy({}, "mail") == a_policy(lease_ms=2000, attempts_max=2)


def test_kind_counts_over_the_queue() -> None:
    policy = MAIL.policy({"lease_ms": 9000, "queue": "mail", "backoff_ms": None}, "mail")
    assert policy == a_policy(lease_ms=9000, attempts_max=2)


def test_enqueue_counts_over_all() -> None:
    base = a_policy(lease_ms=9000, crashes_max=7)
    assert own_policy(a_job(lease_ms=500, attempts_max=1), base) == a_policy(
        lease_ms=500, attempts_max=1, crashes_max=7
    )


def test_job_that_says_nothing_has_the_policy_of_its_kind() -> None:
    base = a_policy(lease_ms=9000)
    assert own_policy(a_job(), base) is base


def test_shortest_lease_is_the_shortest_that_a_queue_asks_for() -> None:
    assert (MAIL.shortest_lease_ms, Rules().shortest_lease_ms) == (2000, limits.LEASE_MS_DEFAULT)


def test_settled_job_takes_what_its_enqueue_left_open() -> None:
    job = a_job(resolved=False, created_boot_ms=100)
    settle(job, {"queue": "mail", "priority": 4, "expires_ms": 50}, MAIL)
    assert (job.resolved, job.queue, job.priority, job.expires_boot_ms) == (True, "mail", 4, 150)


def test_settled_job_keeps_what_its_enqueue_said() -> None:
    given = {"queue_given": True, "priority_given": True, "expires_given": True}
    job = a_job(resolved=False, expires_ms=9, expires_boot_ms=9, **given)
    settle(job, {"queue": "mail", "priority": 4, "expires_ms": 50}, MAIL)
    assert (job.queue, job.priority, job.expires_ms, job.expires_boot_ms) == ("default", 0, 9, 9)


def test_settled_job_of_a_kind_without_policy_stays_as_it_is() -> None:
    job = a_job(resolved=False)
    settle(job, {}, MAIL)
    assert (job.resolved, job.queue, job.priority, job.expires_boot_ms) == (True, "default", 0, 0)


def test_settled_job_takes_from_its_queue_what_the_kind_leaves_open() -> None:
    rules = Rules(queues={"mail": QueueRules(policy={"priority": 7, "expires_ms": 30})})
    job = a_job(resolved=False, created_boot_ms=100, priority=1, expires_ms=5, expires_boot_ms=5)
    settle(job, {"queue": "mail", "priority": 0}, rules)
    assert (job.priority, job.expires_ms, job.expires_boot_ms) == (0, 30, 130)
