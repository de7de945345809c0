"""A broker on a host that was asleep for an hour since it was started: its boot clock is ahead, the monotonic
clock is not. Of a sleep the kernel keeps both, so a time namespace with an offset is the same to a program.
"""

import os
import sys

SLEPT_S = 3600


def main() -> None:
    """As `stoker`, in a time namespace of its own."""
    stoker = [sys.executable, "-m", "stoker.cli.main", *sys.argv[1:]]
    os.execvp("unshare", ["unshare", "--time", "--boottime", str(SLEPT_S), *stoker])
