"""What the end of an attempt means for its job: again, when, or not at all. Pure arithmetic.

Three counters, and which outcome moves which:

| outcome                         | attempt | charged | crashes | releases in a row |
|---------------------------------|---------|---------|---------|-------------------|
| ok                              |         |         |         | 0                 |
| error, timeout, memory          |         | +1      |         | 0                 |
| permanent                       |         | +1      |         | 0                 |
| crash, lost                     |         | +1      | +1      | 0                 |
| released, shutdown              |         |         |         | +1                |
| crash among other jobs          |         |         |         |                   |
| (never started)                 | -1      |         |         |                   |

(A success needs no verdict: `leasing.succeed` does all of it. Nor does a crash of a worker that ran
several jobs: `leasing.suspect`. `attempt` itself was counted when the
job was handed out, before it ran.) An error retries by `attempts_max`, a crash or loss also by
`crashes_max`. The tenth uncharged end in a row means that something is wrong with the job or the
pool, and a person must look.

Backoff: `min(base * 2^(charged-1), cap)`, with jitter inside the cap. The exponent is compared
before anything is computed, so no attempt number overflows. The first crash or loss goes straight
back to ready: the job may have been a bystander. From the second on the formula applies.
"""

from typing import NamedTuple

from ...proto import limits
from ...proto.model import Outcome
from .lifecycle import Command
from .rules import Policy

UNCHARGED = frozenset({Outcome.RELEASED, Outcome.SHUTDOWN})
CRASHES = frozenset({Outcome.CRASH, Outcome.LOST})


class Counters(NamedTuple):
    """The counters of a job that the end of an attempt moves."""

    charged: int
    crashes: int
    releases: int


class Verdict(NamedTuple):
    """How the job goes on. `delay_ms` counts only for FAILED."""

    command: Command
    counters: Counters
    delay_ms: int
    reason: str

    @property
    def is_retry(self) -> bool:
        """The job runs again because the attempt failed. To be given back is no failure."""
        return self.command in (Command.FAILED, Command.RETURNED) and not self.counters.releases


def decide(
    outcome: Outcome,
    before: Counters,
    policy: Policy,
    *,
    reason: str,
    after_ms: int | None,
    chance: float,
) -> Verdict:
    """The verdict on an attempt that did not succeed; `chance` in [0, 1) is the jitter's dice."""
    assert outcome is not Outcome.OK
    if outcome is Outcome.CANCELLED:
        return Verdict(Command.CANCELLED, before, 0, f"cancelled while it ran: {reason}")
    if outcome in UNCHARGED:
        return _uncharged(outcome, before, reason)
    counters = Counters(before.charged + 1, before.crashes + (outcome in CRASHES), 0)
    if outcome is Outcome.PERMANENT:
        return Verdict(Command.GAVE_UP, counters, 0, f"permanent error: {reason}")
    if outcome in CRASHES and counters.crashes >= policy.crashes_max:
        text = f"crashed or lost {counters.crashes} times (crashes_max={policy.crashes_max}): {reason}"
        return Verdict(Command.GAVE_UP, counters, 0, text)
    if counters.charged >= policy.attempts_max:
        used_up = f"attempts used up (attempts_max={policy.attempts_max})"
        text = f"{used_up}, the last ended with {outcome}: {reason}"
        return Verdict(Command.GAVE_UP, counters, 0, text)
    if outcome in CRASHES and counters.crashes == 1:
        return Verdict(Command.RETURNED, counters, 0, f"{outcome}: {reason}")
    delay_ms = backoff(counters.charged, policy, chance) if after_ms is None else after_ms
    return Verdict(Command.FAILED, counters, delay_ms, f"{outcome}: {reason}")


def _uncharged(outcome: Outcome, before: Counters, reason: str) -> Verdict:
    counters = before._replace(releases=before.releases + 1)
    if counters.releases >= limits.RELEASES_IN_A_ROW_MAX:
        text = f"given back {counters.releases} times in a row without one finished attempt: {reason}"
        return Verdict(Command.GAVE_UP, counters, 0, text)
    return Verdict(Command.RETURNED, counters, 0, f"{outcome}: {reason}")


def backoff(charged: int, policy: Policy, chance: float) -> int:
    """Milliseconds until the next attempt, after `charged` charged ones. At most the cap, at least 0."""
    base, cap = policy.backoff_ms, policy.backoff_cap_ms
    exponent = max(charged - 1, 0)
    # base * 2^exponent >= cap exactly when exponent is at least the bits that cap/base needs; asked
    # that way no power is ever computed for an attempt number of 100,000.
    full = cap if base >= cap or exponent >= (cap // base).bit_length() else min(base << exponent, cap)
    return full - int(full * limits.BACKOFF_JITTER * chance)
