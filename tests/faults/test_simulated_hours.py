"""Simulated hours, a few of them: nothing is found in stoker, and something in what is broken on purpose."""

from functools import partial
from random import SystemRandom
from typing import Any

import attrs
import pytest
from support.committers import EagerCommitter, eager_committer
from support.faults.simulated_hours import CORE, WORLDS_MAX, worlds
from support.shell_simulation.life import NotedCore, ShellParts
from support.shell_simulation.trial import shell_trial
from support.simulation.life import Parts
from support.simulation.trial import trial
from support.simulation.watched import WatchedCore
from support.simulation.world import LONG_HOURS, STORMY

from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.driver import Driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STORMS = 4
"""Worlds of half a minute in which it storms all the time; the first of them is run twice."""

WHOLE = attrs.evolve(STORMY, parts=ShellParts(core=NotedCore))


class EagerDriver(Driver):
    """Has such a committer."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.committer.__class__ = EagerCommitter


EAGER_PARTS = ShellParts(core=NotedCore, driver=EagerDriver)


class WhimsicalCore(WatchedCore):
    """Now and then says nothing, by chance that is not the world's."""

    def step(self, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
        effects = super().step(event, now)
        return [] if effects and SystemRandom().random() < 0.1 else effects


def test_promises_hold_for_hours(seed: int) -> None:
    tally = CORE.run(seed, LONG_HOURS)
    assert tally.violations == []
    assert tally.counts == {"simulated_hours": LONG_HOURS, "worlds": 1}


def test_promises_hold_for_the_whole_broker(seed: int) -> None:
    assert worlds(partial(shell_trial, plan=WHOLE), 1, seed, STORMS).violations == []


@pytest.mark.parametrize(
    "run",
    [
        partial(trial, plan=attrs.evolve(STORMY, parts=Parts(committer=eager_committer))),
        partial(shell_trial, plan=attrs.evolve(STORMY, parts=EAGER_PARTS)),
    ],
    ids=["core", "broker"],
)
def test_answers_before_the_commit_are_found_out(run: Any) -> None:
    found = worlds(run, 1, 1, STORMS).violations
    assert any("acknowledged_" in each for each in found)


def test_world_that_does_not_repeat_itself_is_found_out(seed: int) -> None:
    whimsical = partial(trial, plan=attrs.evolve(STORMY, parts=Parts(core=WhimsicalCore)))
    assert f"world {seed * WORLDS_MAX} does not repeat itself" in worlds(whimsical, 1, seed, 1).violations
