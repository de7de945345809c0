"""A program for another user: tries a socket as fast as it can, and notes whatever it should not see.

    python prober.py PATH

Only the standard library, because another user's interpreter may have nothing else. It prints a line when
it begins, ends at the end of its standard input, and prints as JSON how often `connect` ended how, how
often there was a socket to be seen, and each mode of it that gave others anything.
"""

import errno
import json
import os
import select
import socket
import stat
import sys
from collections import Counter

LOOKS = 50
"""Between two looks at standard input."""


def try_once(path: str, ends: "Counter[str]", modes: "set[str]") -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.setblocking(False)
        number = peer.connect_ex(path)
        ends[errno.errorcode[number] if number else "connected"] += 1
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    if stat.S_ISSOCK(mode):
        ends["seen"] += 1
        if mode & 0o077:
            modes.add(oct(stat.S_IMODE(mode)))


def main() -> None:
    ends: Counter[str] = Counter()
    modes: set[str] = set()
    print("there", flush=True)
    is_over = False
    while not is_over:
        # At least once, however short the time was.
        is_over = bool(select.select([sys.stdin], [], [], 0)[0])
        for _ in range(LOOKS):
            try_once(sys.argv[1], ends, modes)
    print(json.dumps({"ends": ends, "modes": sorted(modes)}), flush=True)


if __name__ == "__main__":
    main()
