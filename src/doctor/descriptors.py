"""The limit of open files: whether a broker that is started from here could have as many as it needs."""

import resource
from collections.abc import Iterator

from ..proto import limits
from .finding import Finding, Level

CHECK = "open files"


def descriptors_max() -> int:
    """A broker raises its soft limit itself; the hard one is what counts."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def check_descriptors(most: int) -> Iterator[Finding]:
    """Nothing, if there are enough."""
    least = limits.BROKER_DESCRIPTORS_MIN
    if most < least:
        what = f"the limit of open files is {most} here, and a broker needs {least}: it would not start"
        yield Finding(Level.ERROR, CHECK, what, "raise it (`ulimit -n`, LimitNOFILE= of a unit)")
