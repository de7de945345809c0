"""What the end of an attempt means: counters, verdict, and the arithmetic of the backoff."""

import pytest
from support.core_builders import a_policy

from stoker.broker.core.lifecycle import Command
from stoker.broker.core.retry import Counters, Verdict, backoff, decide
from stoker.broker.core.rules import Policy
from stoker.proto import limits
from stoker.proto.model import Outcome

NONE = Counters(charged=0, crashes=0, releases=0)


def verdict(
    outcome: Outcome,
    before: Counters = NONE,
    policy: Policy | None = None,
    after_ms: int | None = None,
) -> Verdict:
    return decide(outcome, before, policy or a_policy(), reason="why", after_ms=after_ms, chance=0.0)


@pytest.mark.parametrize(
    ("outcome", "charged", "crashes", "releases"),
    [
        (Outcome.ERROR, 3, 1, 0),
        (Outcome.TIMEOUT, 3, 1, 0),
        (Outcome.MEMORY, 3, 1, 0),
        (Outcome.PERMANENT, 3, 1, 0),
        (Outcome.CRASH, 3, 2, 0),
        (Outcome.LOST, 3, 2, 0),
        (Outcome.RELEASED, 2, 1, 5),
        (Outcome.SHUTDOWN, 2, 1, 5),
        (Outcome.CANCELLED, 2, 1, 4),
    ],
)
def test_outcome_moves_its_counters(outcome: Outcome, charged: int, crashes: int, releases: int) -> None:
    moved = verdict(outcome, Counters(charged=2, crashes=1, releases=4)).counters
    assert moved == Counters(charged, crashes, releases)


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.TIMEOUT, Outcome.MEMORY])
def test_failure_waits_for_its_backoff(outcome: Outcome) -> None:
    assert verdict(outcome) == Verdict(
        Command.FAILED, Counters(1, 0, 0), limits.BACKOFF_MS_DEFAULT, f"{outcome}: why"
    )


def test_delay_that_the_handler_asked_for_counts_instead_of_the_backoff() -> None:
    assert verdict(Outcome.ERROR, after_ms=7).delay_ms == 7


def test_delay_of_nothing_is_no_backoff() -> None:
    assert verdict(Outcome.ERROR, after_ms=0).delay_ms == 0


def test_last_attempt_makes_the_job_dead() -> None:
    given_up = verdict(Outcome.ERROR, Counters(1, 0, 0), a_policy(attempts_max=2))
    assert given_up.command is Command.GAVE_UP
    assert given_up.reason == "attempts used up (attempts_max=2), the last ended with error: why"


def test_permanent_error_makes_the_job_dead_at_once() -> None:
    assert verdict(Outcome.PERMANENT)[::3] == (Command.GAVE_UP, "permanent error: why")


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.LOST])
def test_first_crash_goes_straight_back(outcome: Outcome) -> None:
    assert verdict(outcome).command is Command.RETURNED


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.LOST])
def test_second_crash_waits_for_its_backoff(outcome: Outcome) -> None:
    second = verdict(outcome, Counters(1, 1, 0))
    assert (second.command, second.delay_ms) == (Command.FAILED, 2 * limits.BACKOFF_MS_DEFAULT)


def test_crashes_max_counts_over_the_life_of_the_job() -> None:
    third = verdict(Outcome.CRASH, Counters(2, 2, 0))
    assert third.command is Command.GAVE_UP
    assert third.reason == "crashed or lost 3 times (crashes_max=3): why"


def test_only_allowed_crash_makes_the_job_dead() -> None:
    assert verdict(Outcome.CRASH, policy=a_policy(crashes_max=1)).command is Command.GAVE_UP


def test_crash_of_the_only_attempt_makes_the_job_dead() -> None:
    assert verdict(Outcome.CRASH, policy=a_policy(attempts_max=1)).command is Command.GAVE_UP


@pytest.mark.parametrize("outcome", [Outcome.RELEASED, Outcome.SHUTDOWN])
def test_release_returns_the_job(outcome: Outcome) -> None:
    assert verdict(outcome, Counters(0, 0, 8)).command is Command.RETURNED


@pytest.mark.parametrize("outcome", [Outcome.RELEASED, Outcome.SHUTDOWN])
def test_tenth_release_in_a_row_makes_the_job_dead(outcome: Outcome) -> None:
    tenth = verdict(outcome, Counters(0, 0, 9))
    assert tenth.command is Command.GAVE_UP
    assert tenth.reason == "given back 10 times in a row without one finished attempt: why"


def test_cancelled_is_never_retried() -> None:
    assert verdict(Outcome.CANCELLED)[::3] == (Command.CANCELLED, "cancelled while it ran: why")


def test_success_is_not_decided_here() -> None:
    with pytest.raises(AssertionError):
        verdict(Outcome.OK)


# --- backoff -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("charged", "expected"),
    [(0, 500), (1, 500), (2, 1000), (7, 32_000), (8, 60_000), (9, 60_000)],
)
def test_backoff_doubles_up_to_its_cap(charged: int, expected: int) -> None:
    assert backoff(charged, a_policy(backoff_ms=500, backoff_cap_ms=60_000), 0.0) == expected


@pytest.mark.parametrize("charged", [63, 64, 65, 1023, 1024, 1100, 100_000])
@pytest.mark.parametrize("base", [1, 500, limits.DURATION_MS_MAX])
def test_backoff_of_any_attempt_number_is_the_cap(charged: int, base: int) -> None:
    policy = a_policy(backoff_ms=base, backoff_cap_ms=limits.DURATION_MS_MAX)
    assert backoff(charged, policy, 0.0) == limits.DURATION_MS_MAX


def test_backoff_is_what_the_formula_says_at_every_exponent() -> None:
    policy = a_policy(backoff_ms=3, backoff_cap_ms=3 * 2**40 + 1)
    expected = [min(3 * 2 ** (charged - 1), policy.backoff_cap_ms) for charged in range(1, 60)]
    assert [backoff(charged, policy, 0.0) for charged in range(1, 60)] == expected


def test_cap_below_the_base_is_still_a_cap() -> None:
    assert backoff(1, a_policy(backoff_ms=500, backoff_cap_ms=100), 0.0) == 100


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999999])
def test_jitter_stays_inside_the_cap_and_above_nine_tenths(chance: float) -> None:
    delay_ms = backoff(50, a_policy(backoff_ms=500, backoff_cap_ms=60_000), chance)
    assert 54_000 <= delay_ms <= 60_000


def test_jitter_follows_the_dice() -> None:
    policy = a_policy(backoff_ms=1000, backoff_cap_ms=1000)
    assert [backoff(1, policy, chance) for chance in (0.0, 0.5)] == [1000, 950]
