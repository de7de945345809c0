"""beanstalkd's form of text mode: the commands a person already knows, as far as they are built.

So far `stats` and `quit`. The answer to `stats` has beanstalkd's keys where stoker has the figure,
then every figure of `status` under its path of names. Everything else is `UNKNOWN_COMMAND`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from .messages import Refusal

UNKNOWN = b"UNKNOWN_COMMAND\r\n"

_REFUSALS = {"shutting_down": b"DRAINING\r\n", "forbidden": b"FORBIDDEN\r\n"}
"""`FORBIDDEN` is stoker's own: beanstalkd knows no users. Anything else is `INTERNAL_ERROR`."""


_STATES = {"ready": "ready", "reserved": "leased", "delayed": "scheduled", "buried": "dead"}
"""beanstalkd's word for a state to stoker's."""


def stats_answer(status: Mapping[str, Any]) -> bytes:
    """`OK <bytes>`, then that many bytes of YAML: one figure a line."""
    figures = {**_familiar(status), **dict(_flat(status))}
    body = "".join(("---\n", *(f"{key}: {_scalar(value)}\n" for key, value in figures.items()))).encode(
        "ascii"
    )
    return b"OK %d\r\n%b\r\n" % (len(body), body)


def _familiar(status: Mapping[str, Any]) -> dict[str, int]:
    """What monitors of beanstalkd look for. The lists of `status` may be cut, `left_out` says by how much."""
    totals, left_out = status.get("totals", {}), status.get("left_out", {})
    figures = {f"current-jobs-{theirs}": totals.get(ours, 0) for theirs, ours in _STATES.items()}
    for key, name in (("current-tubes", "queues"), ("current-workers", "workers")):
        figures[key] = len(status.get(name, ())) + left_out.get(name, 0)
    return figures


def refusal_line(refusal: Refusal) -> bytes:
    """The word that beanstalkd has for it."""
    return _REFUSALS.get(refusal.code, b"INTERNAL_ERROR\r\n")


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{path}{name}".replace("_", "-")
        if isinstance(value, Mapping):
            yield from _flat(cast("Mapping[str, Any]", value), f"{key}-")
        elif isinstance(value, str | int | float):
            yield key, value


def _scalar(value: object) -> str:
    """Numbers plain, all else as a JSON string, which is YAML too and never more than one line."""
    return str(value) if type(value) in (int, float) else json.dumps(value)
