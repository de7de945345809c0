"""Positive controls: broken brokers that the simulation has to find out, within a few seeds.

Each breaks one rule on purpose. A simulation that finds nothing is worth something only because of
these.
"""

from typing import Any

import pytest
from support.committers import eager_committer
from support.history import LAST_SHOWN
from support.simulation.life import Parts
from support.simulation.trial import trial
from support.simulation.watched import WatchedCore
from support.simulation.world import Plan

from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.job import Job
from stoker.broker.core.queues import Queue
from stoker.proto import messages, work
from stoker.proto.model import Outcome

pytestmark = pytest.mark.slow

SEEDS = 60


class UnfencedCore(WatchedCore):
    """Takes an ack of any token that a job ever had for one of its present token."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._numbers: dict[tuple[int, int], int] = {}

    def step(self, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
        if isinstance(event, ev.Received) and isinstance(event.message, work.Ack):
            token = (event.message.token[0], event.message.token[1])
            if token in self._numbers and token not in self._leasing.leases:
                return self._accept(event, self._memory.jobs.get(self._numbers[token]), now)
        effects = super().step(event, now)
        self._numbers |= {lease.token: lease.number for lease in self._leasing.leases.values()}
        return effects

    def _accept(self, event: ev.Received, job: Job | None, now: ev.Now) -> list[fx.Effect]:
        effects = super().step(ev.TimePassed(), now)
        if job is not None and job.token in self._leasing.leases:
            self._leasing.succeed(self._leasing.leases[job.token], 0, None)
        effects.append(fx.Answer(event.connection, event.request, messages.Done()))
        return effects


class ReadyOnly(Queue):
    """Thinks that only ready jobs fill a queue."""

    __slots__ = ()

    @property
    def live_count(self) -> int:
        return len(self._ready)


class LaxCore(WatchedCore):
    """Counts only ready jobs against the limit of a queue."""

    def step(self, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
        for queue in self._memory.queues.values():
            queue.__class__ = ReadyOnly
        return super().step(event, now)


class ForgetfulCore(WatchedCore):
    """Begins every life with the same epoch."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named | {"epoch": 1})


class HastyCore(WatchedCore):
    """Frees the jobs of a dead worker without waiting for its supervisor's report."""

    def step(self, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
        effects = super().step(event, now)
        if isinstance(event, ev.PeerExited):
            for worker in [worker for worker in self._registry.workers.values() if worker.dead]:
                for lease in list(worker.leases.values()):
                    self._leasing.end(lease, Outcome.CRASH)
        return effects


COMPLETIONS = "acknowledged_completions_stay"


@pytest.mark.parametrize(
    ("parts", "broken"),
    [
        pytest.param(Parts(committer=eager_committer), {"acknowledged_jobs_exist"}, id="eager"),
        pytest.param(Parts(core=UnfencedCore), {"stale_tokens_change_nothing", COMPLETIONS}, id="unfenced"),
        pytest.param(Parts(core=LaxCore), {"room_is_kept"}, id="lax limit"),
        pytest.param(Parts(core=ForgetfulCore), {"tokens_grow", COMPLETIONS}, id="same epoch"),
        pytest.param(Parts(core=HastyCore), {"nothing_runs_twice_at_once"}, id="hasty"),
    ],
)
def test_broken_broker_is_found_out(parts: Parts, broken: set[str]) -> None:
    """By the promise that it breaks, not by some other one."""
    findings = (trial(seed, Plan(parts=parts)) for seed in range(SEEDS))
    assert any(broken & finding.promises for finding in findings)


def test_finding_says_how_to_see_it_again() -> None:
    broken = Plan(parts=Parts(core=LaxCore))
    finding = next(finding for seed in range(SEEDS) if (finding := trial(seed, broken)).faults)
    text = str(finding)
    assert f"pytest tests/simulation --seed {finding.seed}" in text
    assert finding.faults[0] in text and all(line in text for line in finding.last)
    assert len(finding.last) == LAST_SHOWN
