"""Which queues a worker takes jobs from, and whose turn it is among them.

    nothing said     every queue, in fair turns (that is `leasing`'s: all such workers share the turns)
    weights all 0    these queues only, strictly in this order
    weights          these queues only, each as often as its weight has it while all have jobs

By weight: every queue that has a job gains its weight, the one with most goes, and pays the sum. That
spreads the turns evenly, needs no dice, and a queue that was empty has saved nothing up.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any


class Turns:
    """The queues of one worker, by name. See the module."""

    __slots__ = ("_gained", "is_strict", "names", "weights")

    def __init__(self, weights: Mapping[str, int]) -> None:
        self.weights = weights
        self.names = frozenset(weights)
        self.is_strict = not any(weights.values())
        self._gained = dict.fromkeys(weights, 0)

    def choose(self, having_jobs: Collection[str]) -> str:
        """Whose turn it is among some of the queues, by weight."""
        gained = self._gained
        for name in having_jobs:
            gained[name] += self.weights[name]
        chosen = max(having_jobs, key=lambda name: gained[name])
        gained[chosen] -= sum(self.weights[name] for name in having_jobs)
        return chosen


def turns_of(queues: Sequence[Sequence[Any]]) -> Turns | None:
    """From what a hello says, `[name, weight]` each; None for all queues."""
    return Turns({str(name): int(weight) for name, weight in queues}) if queues else None


def contradiction(queues: Sequence[Sequence[Any]]) -> str:
    """What cannot hold together in what a hello says of queues; empty if nothing."""
    weights = [weight for _, weight in queues]
    if len({name for name, _ in queues}) < len(weights):
        return "hello: a queue is named twice"
    if any(weights) and not all(weights):
        return "hello: either all queues have a weight or none"
    return ""
