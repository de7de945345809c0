"""Rows of the journal and the values they hold, each row with its checksum.

The checksum of a row is the CRC32 of the msgpack array of its columns, as they are stored except that
flags of jobs are true and false; that of a payload starts from the job's number, so that two payloads
cannot be exchanged unnoticed. A damaged row is refused, never used and never mended.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

import msgpack

from ...proto.model import State
from ..core.effects import OutcomeRow
from ..core.job import COLUMNS, Image, Job, from_image
from .schema import FLAGS

Row = tuple[Any, ...]

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack

_HEADERS = COLUMNS.index("headers")
_STATE = COLUMNS.index("state")
_FLAGS = tuple(COLUMNS.index(name) for name in FLAGS)
_STATES = {state.value: state for state in State}
_NUMBER_MASK = 0xFFFFFFFF


class DamagedRowError(Exception):
    """The row does not match its checksum."""


def job_rows(images: Iterable[Image]) -> Iterator[Row]:
    """Rows of `jobs`. A generator on the hot path: nothing here but what must be."""
    pack, crc, headers = _pack, crc32, _HEADERS
    for image in images:
        if image[headers] is not None:
            image = (*image[:headers], _json(image[headers]), *image[headers + 1 :])
        yield (*image, crc(pack(image)))


def job_from_row(row: Row) -> Job:
    values = list(row)
    crc = values.pop()
    for flag in _FLAGS:
        values[flag] = bool(values[flag])
    if crc32(_pack(values)) != crc:
        raise DamagedRowError(f"the row of job number {row[0]} does not match its checksum")
    values[_STATE] = _STATES[values[_STATE]]
    if values[_HEADERS] is not None:
        values[_HEADERS] = json.loads(values[_HEADERS])
    return from_image(tuple(values))


def payload_row(number: int, payload: bytes) -> Row:
    return (number, payload, crc32(payload, number & _NUMBER_MASK))


def payload_from_row(number: int, row: Row) -> bytes:
    payload: Any = row[0]
    # A damaged row may hold a value of any type.
    if type(payload) is not bytes or crc32(payload, number & _NUMBER_MASK) != row[1]:
        raise DamagedRowError(f"the payload of job number {number} does not match its checksum")
    return payload


def sealed(values: Row) -> Row:
    """A row of any other table: its values, with their checksum behind them."""
    return (*values, crc32(_pack(values)))


def unsealed(row: Row, what: str) -> Row:
    """The values again; `what` they are, for whoever has to hear that they are damaged."""
    values = row[:-1]
    if crc32(_pack(values)) != row[-1]:
        raise DamagedRowError(f"{what} does not match its checksum")
    return values


def outcome_from_row(row: Row) -> OutcomeRow:
    return unsealed(row, f"an outcome of job number {row[0]}")


def id_from_row(row: Row) -> Row:
    return unsealed(row, "a remembered id")


def kind_row(kind: str, pool: str, policy: dict[str, Any]) -> Row:
    return sealed((kind, pool, _json(policy)))


def kind_from_row(row: Row) -> tuple[str, str, dict[str, Any]]:
    kind, pool, policy = unsealed(row, f"kind {row[0]!r}")
    return kind, pool, json.loads(policy)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
