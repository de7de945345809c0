"""One hostile connection: what it says, in which chunks, and whether it was told what it had to be told.

A conversation is an introduction, some specimens that cost no more than themselves, and at most one that
ends it or is unknown, which comes last. It then closes its sending side and reads to the end: all that
was asked is answered by then, each thing once, and the broker has closed too.
"""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgpack
from support.faults.specimen import ANSWERED, Specimen

from stoker.proto import work
from stoker.proto.messages import ANSWER, ERROR

UNKNOWN_LINE = b"UNKNOWN_COMMAND"
_PUSHES = (work.OPS[work.Job][0], work.OPS[work.Kill][0])


class Said(NamedTuple):
    """One answer."""

    request: int
    verdict: str
    """A code word, or `ANSWERED`."""


class Conversation(NamedTuple):
    """See the module."""

    specimens: Sequence[Specimen]
    is_text: bool

    @property
    def data(self) -> bytes:
        return b"".join(specimen.data for specimen in self.specimens)

    def faults(self, heard: bytes) -> list[str]:
        """What is wrong with all that the broker said, until it closed."""
        try:
            said = list(_lines(heard) if self.is_text else _frames(heard))
        except (ValueError, IndexError, KeyError, TypeError, msgpack.UnpackException) as error:
            return [f"the broker said {heard[-200:]!r}, which cannot be read: {error!r}"]
        return [*self._wrong_answers(said), *self._excess(said)]

    def _wrong_answers(self, said: list[Said]) -> Iterator[str]:
        by_request: dict[int, list[str]] = {}
        is_unknown = self.specimens[-1].silent
        for request, verdict in said:
            by_request.setdefault(request, []).append(verdict)
        for specimen in self.specimens:
            if specimen.silent:
                continue
            told = by_request.get(specimen.request, [])
            if is_unknown:
                # Damage may have made it bear the number of another.
                told = [verdict for verdict in told if verdict in specimen.verdicts][:1]
            if specimen.request and len(told) != 1:
                yield _fault(specimen, f"was answered {len(told)} times: {told}")
            elif not told:
                yield _fault(specimen, "was not answered")
            elif (last := told.pop() if specimen.fatal else told.pop(0)) not in specimen.verdicts:
                yield _fault(specimen, f"was told {last}, not {sorted(specimen.verdicts)}")

    def _excess(self, said: list[Said]) -> Iterator[str]:
        last = self.specimens[-1]
        if last.silent:
            expected = {specimen.request for specimen in self.specimens}
            for request, verdict in said:
                if request not in expected and verdict not in last.verdicts:
                    yield _fault(last, f"was told {verdict} as request {request}")
            return
        count = sum(not specimen.silent for specimen in self.specimens)
        if len(said) > count:
            yield _fault(last, f"{count} answers were due, and {len(said)} came: {said[-3:]}")
        elif last.fatal and said and said[-1].request != 0:
            yield _fault(last, f"the last word was {said[-1]}")

    def chunks(self, rng: random.Random) -> list[bytes]:
        """The bytes as they are to be sent: mostly at once, sometimes cut where it hurts."""
        data = self.data
        if rng.random() < 0.8:
            return [data]
        edges = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 4)))
        return [data[start:end] for start, end in zip([0, *edges], [*edges, len(data)], strict=True)]


def _fault(specimen: Specimen, what: str) -> str:
    data = specimen.data[:120].hex() + ("..." if len(specimen.data) > 120 else "")
    return f"{specimen.name} (request {specimen.request}, {data}) {what}"


def _frames(heard: bytes) -> Iterator[Said]:
    at = 0
    while at < len(heard):
        end = at + 4 + int.from_bytes(heard[at : at + 4], "big")
        if end > len(heard):
            raise ValueError("a frame is cut")
        array: list[Any] = msgpack.unpackb(heard[at + 4 : end])
        if array[0] not in (ANSWER, ERROR, *_PUSHES):
            raise ValueError(f"op {array[0]}")
        if array[0] not in _PUSHES:
            yield Said(array[1], array[2] if array[0] == ERROR else ANSWERED)
        at = end


def _lines(heard: bytes) -> Iterator[Said]:
    if heard and not heard.endswith(b"\n"):
        raise ValueError("a line is cut")
    for line in heard.splitlines():
        if line == UNKNOWN_LINE:
            yield Said(0, line.decode())
            continue
        answer: dict[str, Any] = json.loads(line)
        if "op" not in answer:
            yield Said(answer.get("request", 0), ANSWERED if answer["ok"] else answer["error"])
