"""A broker without fencing across restarts: every start counts its tokens from the same epoch."""

from typing import Any

from stoker.broker import main as broker
from stoker.broker.core.step import Core
from stoker.cli.main import main as stoker


class ForgetfulCore(Core):
    """Does not know that others were before it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named | {"epoch": 1})


def main() -> None:
    """As `stoker`."""
    setattr(broker, Core.__name__, ForgetfulCore)
    stoker()
