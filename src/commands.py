"""Programs beside a handler, and what goes into and comes out of them.

    from stoker.commands import lines, run

`docs/commands.md` tells how; jobs that are programs altogether need no handler (`stoker run`).
"""

from .worker.commands.filter import Gap, OutputLimitError
from .worker.commands.framing import TruncatedFrameError
from .worker.commands.program import ProgramError
from .worker.commands.run import Child, CommandError, CommandTimeoutError, run
from .worker.commands.sentinels import SentinelLostError, StartError
from .worker.commands.sinks import DISCARD, chunks, lengths, lines, records

__all__ = [
    "DISCARD",
    "Child",
    "CommandError",
    "CommandTimeoutError",
    "Gap",
    "OutputLimitError",
    "ProgramError",
    "SentinelLostError",
    "StartError",
    "TruncatedFrameError",
    "chunks",
    "lengths",
    "lines",
    "records",
    "run",
]
