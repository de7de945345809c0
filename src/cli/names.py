"""Names that nobody knows: somebody probably mistyped one, and is told so.

A command does what it was asked for all the same: a queue begins with its first job, and may be paused
before that. Said on stderr, and only where it is certain.
"""

from typing import TYPE_CHECKING

from ..proto.errors import StokerError
from .escape import escape
from .output import say
from .reading import mapping

if TYPE_CHECKING:
    from ..client.sync import Client


def doubt(client: "Client", queue: str | None, kind: str | None = None) -> None:
    """Say which of these names is none: no job is in that queue, no pool has declared anything for it."""
    if queue is None and kind is None:
        return
    try:
        report = client.status()
    except StokerError:
        # This was asked on the side; whatever is wrong is for the command itself to say.
        return
    queues, kinds = mapping(report.get("queues")), mapping(report.get("kinds"))
    if any(mapping(report.get("left_out")).get(name) for name in ("queues", "kinds")):
        return
    declared = {mapping(policy).get("queue") for policy in kinds.values()}
    if queue is not None and queue not in queues and queue not in declared:
        say(f"stoker: no job is in queue {escape(queue)}, no kind is declared for it; see `stoker status`")
    if kind is not None and kind not in kinds:
        say(f"stoker: no pool has declared a kind {escape(kind)}; see `stoker status`")
