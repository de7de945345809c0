"""What is configured of one queue: the same for who reads it from a file and for the core that obeys it."""

from collections.abc import Mapping
from typing import NamedTuple

from . import limits
from .model import Overflow

_NO_POLICY: Mapping[str, int] = {}


class QueueRules(NamedTuple):
    """Limits of one queue, and the policy its jobs get where neither enqueue nor kind says."""

    jobs_max: int = limits.QUEUE_JOBS_MAX_DEFAULT
    bytes_max: int = limits.QUEUE_BYTES_MAX_DEFAULT
    dead_max: int = limits.QUEUE_DEAD_MAX_DEFAULT
    overflow: Overflow = Overflow.REJECT
    policy: Mapping[str, int] = _NO_POLICY
