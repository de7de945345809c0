"""How many open files a program needs, and what is said where it may not have so many.

Out of descriptors in the middle of a start, Python cannot even load what would explain it. So the limit is
looked at first, and what fails is a setting, told on one line. A soft limit is raised where the hard one
allows it, and only as far as needed: what a pool may have, its handlers inherit.
"""

import resource

from ..config.mistakes import SettingError
from ..proto import limits


def for_pool(workers: int, async_workers: int) -> int:
    """What a pool's supervisor needs. The app may have handlers for two kinds of event loop."""
    return limits.POOL_DESCRIPTORS + limits.WORKER_DESCRIPTORS * (workers + 2 * async_workers)


def require(least: int, whose: str, *, instead: str = "") -> None:
    """SettingError if not even the hard limit lets this process and its children have so many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < least:
        raise SettingError(
            f"the limit of open files is {hard}, and {whose} needs {least}; "
            f"raise it (`ulimit -n`, LimitNOFILE= of a unit){instead}"
        )


def ensure(least: int, whose: str, *, instead: str = "") -> None:
    """The same, and this process has them from now on."""
    require(least, whose, instead=instead)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < least:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))
