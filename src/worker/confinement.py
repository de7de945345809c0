"""How far a job of a kind may reach: `memory_limit` and `isolate` of its declaration.

Both are for plain functions: coroutine handlers share one process and its memory, so a limit could not
say whose it is, and a process of its own is what that worker is there to spare.

Decided and held in the worker. The broker never hears of either.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from .flavour import Flavour

CONFINEMENT_OPTIONS = ("memory_limit", "isolate")


class Confinement(NamedTuple):
    """Of one kind."""

    memory_max: int = 0
    """Bytes; 0 for what the pool says."""
    isolate: bool = False


FREE = Confinement()


def confinement_of(kind: str, options: Mapping[str, Any], flavour: Flavour) -> Confinement:
    """Of the options of a declaration; ValueError naming the one that is wrong."""
    memory_limit, isolate = options.get("memory_limit"), options.get("isolate")
    if isolate is not None and type(isolate) is not bool:
        raise ValueError(f"{kind}: isolate must be True or False, not {isolate!r:.100}")
    if memory_limit is None and not isolate:
        return FREE
    if flavour is not Flavour.PLAIN:
        option = "isolate" if memory_limit is None else "memory_limit"
        raise ValueError(f"{kind}: {option} is for plain functions; coroutines share one process")
    return Confinement(0 if memory_limit is None else _bytes(kind, memory_limit), bool(isolate))


def _bytes(kind: str, memory_limit: object) -> int:
    # Programs that only enqueue need not load what reads a size.
    from .memory import parse_limit

    try:
        return parse_limit(memory_limit)
    except ValueError as error:
        raise ValueError(f"{kind}: memory_limit {error}") from None
