"""An honest client beside a crowd: what is measured of it and of the broker, and when that is too much."""

import resource

SLOWER_MAX = 2.0
"""So many times as long as without the crowd."""

NOT_SLOW_S = 0.010
"""Below this nothing is slow, however fast it was without the crowd: three things are said for each job (enqueue,
wait, ack), and each may find the broker in a round that has just begun, which may last 3 ms."""

PEAK_MIB_MAX = 200
"""A broker alone has 40. The rest is what a crowd of a thousand may make it hold: of each one read, 64 KiB; 64 MiB
that are unread; sockets, what is just being made, and room for the allocator."""


def slowest_in_a_hundred(took_s: list[float]) -> float:
    """The time in which all but one in a hundred were done."""
    return sorted(took_s)[-1 - len(took_s) // 100]


def peak_mib(pid: int) -> int:
    """The most memory that a process has had."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmHWM"))


def lack_of_descriptors(connections: int) -> str:
    """Why a crowd of so many cannot come; empty if it can."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * connections + 200
    return f"the limit of descriptors is {hard}, and {wanted} are needed" if hard < wanted else ""
