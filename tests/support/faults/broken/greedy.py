"""A broker that takes jobs as long as there is a byte on the disk, and keeps nothing back for acks."""

from stoker.broker import main as broker
from stoker.broker.core.events import Now
from stoker.broker.files import Ballast
from stoker.broker.storage import Storage, Survey
from stoker.cli.main import main as stoker


class GreedyStorage(Storage):
    """Is full only when nothing fits any more."""

    def take(self, payload_bytes: int, now: Now) -> bool:
        return False

    def judge(self, survey: Survey, now: Now, *, is_stuck: bool) -> bool | None:
        return None


class NoBallast(Ballast):
    """Never taken on board."""

    def fill(self, *, spare_bytes: int = 0) -> bool:
        return True


def main() -> None:
    """As `stoker`."""
    for part, broken in {"Storage": GreedyStorage, "Ballast": NoBallast}.items():
        setattr(broker, part, broken)
    stoker()
