"""A broker that now and then takes an ack for a release, so that the job runs once more."""

from typing import Any

from stoker.broker.core import leasing
from stoker.broker.core import step as core
from stoker.broker.core.workers import Lease
from stoker.cli.main import main as stoker
from stoker.proto.model import Outcome

EVERY = 200


class RepeatingLeasing(leasing.Leasing):
    """Mishears every so many acks."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._acks = 0

    def succeed(
        self, lease: Lease, duration_ms: int, result: bytes | None, output: str | None = None
    ) -> None:
        self._acks += 1
        if self._acks % EVERY:
            super().succeed(lease, duration_ms, result, output)
        else:
            self.end(lease, Outcome.RELEASED, op="ack", reason="misheard")


def main() -> None:
    """As `stoker`."""
    setattr(core, leasing.Leasing.__name__, RepeatingLeasing)
    stoker()
