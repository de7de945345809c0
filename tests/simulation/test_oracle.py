"""The oracle itself: a good history passes, and of each promise one broken history is caught."""

from collections.abc import Sequence

import pytest
from support.history import (
    Asked,
    Calm,
    Confirmed,
    Crashed,
    Died,
    Dropped,
    Ended,
    Enqueued,
    Heard,
    Logged,
    OnRecord,
    Over,
    Pushed,
    Reached,
    Record,
    Retried,
    Row,
    Sampled,
    Silent,
    Started,
    Stopped,
    Told,
)
from support.oracle import LEAVING_MS, second_deliveries, violations

from stoker.proto import limits

BODY = ("send", b"body")
FIRST, SECOND = (1, 1), (1, 2)


GOOD = Row("a", 1, "mail", "done", charged=0, crashes=0, attempts_max=5, crashes_max=3)


def ended(*rows: Row) -> Ended:
    counts = {(each.queue, each.state): 0 for each in rows}
    for each in rows:
        counts[each.queue, each.state] += 1
    return Ended(99, rows, counts)


def stored(id: str = "a", number: int = 1, body: tuple[object, ...] = BODY) -> Enqueued:
    return Enqueued(1, id, body, False, number)


def delivery(token: tuple[int, int], worker: str = "w1", job_id: str = "a") -> list[Record]:
    return [Pushed(2, job_id, token, worker, 1), Started(3, job_id, token, worker, True)]


def finish(token: tuple[int, int], worker: str = "w1", op: str = "ack") -> list[Record]:
    return [Stopped(4, token), Reached(5, worker, token, op), Confirmed(6, worker, token, op)]


def caught(records: Sequence[Record]) -> set[str]:
    """Names of the promises that the oracle finds broken."""
    return {text.partition(":")[0] for text in violations(records)}


def test_plain_run_is_good() -> None:
    assert violations([stored(), *delivery(FIRST), *finish(FIRST), ended(GOOD)]) == []


def test_retry_after_an_error_is_good() -> None:
    again = [*delivery(FIRST), *finish(FIRST, op="nack"), *delivery(SECOND, "w2"), *finish(SECOND, "w2")]
    assert violations([stored(), *again, ended(GOOD._replace(charged=1))]) == []


def test_redelivery_after_a_swept_death_is_good() -> None:
    died: list[Record] = [Died(4, "w1"), Stopped(5, FIRST)]
    again = [*delivery(FIRST), *died, *delivery(SECOND, "w2"), *finish(SECOND, "w2")]
    assert violations([stored(), *again, ended(GOOD)]) == []


def test_delivery_to_a_worker_that_was_silent_already_may_be_repeated() -> None:
    pushes: list[Record] = [Pushed(2, "a", FIRST, "w1", 1), Pushed(9, "a", SECOND, "w2", 1)]
    assert violations([stored(), Silent(1, "w1"), *pushes, ended(GOOD)]) == []


def test_repeated_nack_after_the_next_delivery_is_good() -> None:
    first: list[Record] = [Stopped(4, FIRST), Reached(5, "w1", FIRST, "nack"), Crashed(5)]
    repeat: list[Record] = [Reached(8, "w1", FIRST, "nack"), Confirmed(9, "w1", FIRST, "nack")]
    last = finish(SECOND, "w2")
    records = [stored(), *delivery(FIRST), *first, *delivery(SECOND, "w2"), *repeat, *last, ended(GOOD)]
    assert violations(records) == []


def test_dropped_job_may_be_gone() -> None:
    assert violations([stored(), Dropped(5, "a"), ended()]) == []


def test_lost_acknowledged_job_is_caught() -> None:
    assert caught([stored(), ended()]) == {"acknowledged_jobs_exist"}


def test_job_with_another_number_is_caught() -> None:
    assert caught([stored(number=7), ended(GOOD._replace(number=8))]) == {"acknowledged_jobs_exist"}


def test_unfinished_job_is_caught() -> None:
    assert caught([stored(), ended(GOOD._replace(state="ready"))]) == {"acknowledged_jobs_exist"}


def test_delivery_after_a_confirmed_ack_is_caught() -> None:
    again = [*delivery(FIRST), *finish(FIRST), Died(7, "w1"), *delivery(SECOND), *finish(SECOND)]
    assert caught([stored(), *again, ended(GOOD)]) == {"acknowledged_completions_stay"}


def test_confirmed_ack_of_a_job_that_is_not_done_is_caught() -> None:
    records = [stored(), *delivery(FIRST), *finish(FIRST), ended(GOOD._replace(state="dead"))]
    assert caught(records) == {"acknowledged_completions_stay"}


@pytest.mark.parametrize("token", [FIRST, (0, 9)], ids=["same", "older"])
def test_token_that_does_not_grow_is_caught(token: tuple[int, int]) -> None:
    again = [*delivery(FIRST), *finish(FIRST, op="nack"), *delivery(token), *finish(token, op="nack")]
    assert "tokens_grow" in caught([stored(), *again])


def test_token_of_two_jobs_is_caught() -> None:
    both = [*delivery(FIRST), *finish(FIRST), *delivery(FIRST, "w2", "b"), *finish(FIRST, "w2")]
    assert "tokens_grow" in caught(both)


def test_accepted_stale_token_is_caught() -> None:
    late = finish(FIRST, op="release")
    records = [*delivery(FIRST), Silent(4, "w1"), Stopped(4, FIRST), *delivery(SECOND, "w2"), *late]
    assert caught(records) == {"stale_tokens_change_nothing"}


def test_late_nack_after_a_restart_passes_only_for_an_attempt_over_its_time() -> None:
    late: list[Record] = [Silent(4, "w1"), Crashed(5), Confirmed(60, "w1", FIRST, "nack")]
    long, short = (
        Pushed(2, "a", FIRST, "w1", 1, limit_ms=limit_ms) for limit_ms in (LEAVING_MS + 59, LEAVING_MS + 58)
    )
    newer = Pushed(50, "a", SECOND, "w2", 1)
    assert caught([long, *late[:2], newer, Reached(55, "w1", FIRST, "nack"), late[2]]) == {
        "stale_tokens_change_nothing"
    }
    assert caught([short, *late[:2], newer, Reached(55, "w1", FIRST, "nack"), late[2]]) == set()


def test_token_accepted_from_another_worker_is_caught() -> None:
    assert caught([*delivery(FIRST), *finish(FIRST, "w2")]) == {"stale_tokens_change_nothing"}


def test_wrong_count_is_caught() -> None:
    assert caught([Ended(9, (GOOD,), {("mail", "done"): 2})]) == {"counts_add_up"}


def test_job_in_two_states_is_caught() -> None:
    assert caught([ended(GOOD, GOOD._replace(state="dead"))]) == {"counts_add_up"}


@pytest.mark.parametrize(
    "row", [GOOD._replace(charged=6), GOOD._replace(crashes=4)], ids=["charged", "crashes"]
)
def test_exceeded_limit_is_caught(row: Row) -> None:
    assert caught([ended(row)]) == {"limits_hold"}


def test_second_delivery_without_a_reason_is_caught() -> None:
    twice = [*delivery(FIRST), Stopped(4, FIRST), *delivery(SECOND, "w2"), *finish(SECOND, "w2")]
    assert caught([stored(), *twice, ended(GOOD)]) == {"second_deliveries_have_a_reason"}


def test_broker_crash_is_no_reason_for_a_second_delivery() -> None:
    twice = [*delivery(FIRST), Stopped(4, FIRST), Crashed(5), *delivery(SECOND, "w2")]
    assert caught([stored(), *twice]) == {"second_deliveries_have_a_reason"}


@pytest.mark.parametrize(("after_ms", "is_found"), [(1000, False), (999, True)])
def test_time_limit_is_a_reason_only_once_it_is_over_but_for_what_leaving_may_take(
    after_ms: int, *, is_found: bool
) -> None:
    first = Pushed(2, "a", FIRST, "w1", 1, limit_ms=1000 + LEAVING_MS)
    assert caught([first, Pushed(2 + after_ms, "a", SECOND, "w2", 2)]) == (
        {"second_deliveries_have_a_reason"} if is_found else set()
    )


def test_silence_that_is_over_is_no_reason_for_a_second_delivery() -> None:
    before: list[Record] = [Silent(1, "w1"), Heard(1, "w1")]
    twice = [*before, *delivery(FIRST), Stopped(4, FIRST), *delivery(SECOND, "w2")]
    assert caught(twice) == {"second_deliveries_have_a_reason"}


def test_two_bodies_under_one_id_are_caught() -> None:
    assert caught([stored(), stored(body=("send", b"other"))]) == {"same_id_is_same_job"}


def test_two_numbers_under_one_id_are_caught() -> None:
    assert caught([stored(), stored(number=2)]) == {"same_id_is_same_job"}


def test_conflict_of_a_job_with_itself_is_caught() -> None:
    assert caught([stored(), Enqueued(5, "a", BODY, False, None, "conflict")]) == {"same_id_is_same_job"}


def test_conflict_of_another_body_is_good() -> None:
    other = Enqueued(5, "a", ("send", b"other"), False, None, "conflict")
    assert violations([stored(), other, ended(GOOD)]) == []


def test_start_beside_a_running_process_is_caught() -> None:
    beside = [*delivery(FIRST), Died(4, "w1"), *delivery(SECOND, "w2"), Stopped(9, FIRST)]
    assert caught(beside) == {"nothing_runs_twice_at_once"}


def test_second_deliveries_are_found_whatever_their_reason() -> None:
    again = [*delivery(FIRST), *finish(FIRST, op="nack"), *delivery(SECOND)]
    assert second_deliveries(again) == ["a"]
    assert second_deliveries(delivery(FIRST)) == []


def test_delivery_after_a_client_was_told_of_the_end_is_caught() -> None:
    told: list[Record] = [Stopped(4, FIRST), Told(7, "a", "done"), Died(7, "w1")]
    again = [*delivery(FIRST), *told, *delivery(SECOND, "w2")]
    assert caught([stored(), *again, ended(GOOD)]) == {"acknowledged_completions_stay"}


def test_job_that_nobody_asked_for_is_caught() -> None:
    asked = Asked(1, "a", BODY)
    assert violations([asked, stored(), ended(GOOD)]) == []
    assert caught([asked, stored(), ended(GOOD, GOOD._replace(id="b", number=2))]) == {
        "nothing_comes_from_nowhere"
    }


def test_job_that_is_done_without_a_delivery_is_caught() -> None:
    other = GOOD._replace(id="b", number=2)
    records = [stored(), stored("b", 2), *delivery(FIRST), *finish(FIRST)]
    assert caught([*records, ended(GOOD, other)]) == {"what_is_done_was_delivered"}
    assert caught([*records, *delivery(SECOND, job_id="b"), ended(GOOD, other)]) == set()


# --- what is on record --------------------------------------------------------------------------------

CRASH, OK = OnRecord(FIRST, "crash", "signal 9"), OnRecord(SECOND, "ok", "")


def recorded(*attempts: OnRecord, died: str = "w1") -> list[Record]:
    """Two deliveries, of which the first ended by a death, and what the journal says of them."""
    first: list[Record] = [stored(), *delivery(FIRST), Died(4, died), Stopped(4, FIRST)]
    return [*first, *delivery(SECOND, "w2"), *finish(SECOND, "w2"), ended(GOOD._replace(attempts=attempts))]


def test_second_delivery_that_is_explained_on_record_is_good() -> None:
    assert violations(recorded(CRASH, OK)) == []


@pytest.mark.parametrize(
    "attempts",
    [
        pytest.param((OK,), id="missing"),
        pytest.param((CRASH._replace(reason=""), OK), id="no reason"),
        pytest.param((OK._replace(token=FIRST), OK), id="two successes"),
        pytest.param((CRASH,), id="done without success"),
    ],
)
def test_second_delivery_that_is_not_explained_on_record_is_caught(attempts: tuple[OnRecord, ...]) -> None:
    assert caught(recorded(*attempts)) == {"records_explain_deliveries"}


def test_crash_on_record_of_a_worker_that_lives_is_caught() -> None:
    silent = [Silent(4, "w1") if isinstance(each, Died) else each for each in recorded(CRASH, OK)]
    assert caught(silent) == {"records_explain_deliveries"}


def test_attempts_that_are_too_old_to_be_kept_on_record_are_not_missed() -> None:
    later = tuple(OnRecord((2, n), "error", "on purpose") for n in range(1, limits.OUTCOMES_KEPT))
    assert violations(recorded(*later, OnRecord((2, 99), "ok", ""))) == []


def test_two_dead_letters_of_one_job_are_caught() -> None:
    dead = GOOD._replace(state="dead")
    letter = Logged(8, "job_dead", "a")
    assert violations([stored(), letter, ended(dead)]) == []
    assert caught([stored(), letter, letter, ended(dead)]) == {"dead_letters_are_single"}
    assert caught([stored(), letter, ended(GOOD)]) == {"dead_letters_are_single"}


def test_fault_inside_that_is_logged_is_caught() -> None:
    assert caught([Logged(8, "internal_error", "")]) == {"nothing_failed_inside"}
    assert violations([Logged(8, "ready", "")]) == []


# --- bounds -------------------------------------------------------------------------------------------


def retried(at_ms: int, charged: int = 3) -> Retried:
    """Base 100 ms, so that 400 are due after the third charged attempt, or 360 to 400 with the jitter."""
    return Retried(at_ms, "a", 1000, charged, base_ms=100, cap_ms=1000, late_ms=50)


@pytest.mark.parametrize("at_ms", [1359, 1400, 1450], ids=["least", "whole", "late"])
def test_retry_within_its_backoff_is_good(at_ms: int) -> None:
    assert violations([retried(at_ms)]) == []


@pytest.mark.parametrize("at_ms", [1100, 1357, 1452], ids=["much too early", "too early", "too late"])
def test_retry_outside_of_its_backoff_is_caught(at_ms: int) -> None:
    assert caught([retried(at_ms)]) == {"backoff_is_kept"}


def test_backoff_beyond_the_cap_is_caught() -> None:
    assert violations([retried(2050, charged=40)]) == []
    assert caught([retried(2100, charged=40)]) == {"backoff_is_kept"}


def test_growth_beyond_a_cap_is_caught() -> None:
    assert violations([Sampled(5, "log bytes", 10, 10)]) == []
    assert caught([Sampled(5, "log bytes", 11, 10)]) == {"caps_hold"}


def test_end_that_comes_late_after_the_last_fault_is_caught() -> None:
    assert violations([Calm(10, 89), ended()]) == []
    assert caught([Calm(10, 88), ended()]) == {"calm_brings_everything_to_its_end"}


def test_process_that_outlives_its_lease_is_caught() -> None:
    over = Over(5, FIRST, grace_ms=10)
    assert violations([*delivery(FIRST), over, Stopped(15, FIRST)]) == []
    assert violations([over]) == []
    assert caught([*delivery(FIRST), over, Stopped(16, FIRST)]) == {"nothing_outlives_its_lease"}
    assert caught([*delivery(FIRST), over]) == {"nothing_outlives_its_lease"}
