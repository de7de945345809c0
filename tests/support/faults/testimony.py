"""Testimony: what the notebooks of a run say, as a history that the oracle can judge.

Handlers, clients and whoever kills note what they see; here it becomes deliveries, ends and deaths.

- A handler that started was delivered to. Deliveries that never came to a handler are nobody's business.
- Who kills a process kills what the kernel ends with it: a worker dies with its zygote and its supervisor,
  the process of an isolated job with its worker. So each note of a kill is a death of all that descend from
  it, by the ancestors that every attempt names.
- An attempt that got the lock of its job proves that nothing of the earlier ones runs any more.
- Supervisor and zygote killed together leave nobody who could sweep: what ran under them counts as not
  supervised. (As docs/guarantees.md says.)
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from .. import history as h
from .notebook import Note

TOGETHER_NS = 4_000_000_000
"""A zygote whose supervisor was killed needs so long, at most, to end its workers."""


def records_of(notes: Sequence[Note]) -> list[h.Record]:
    """The notes, which are in order, as records."""
    return list(_Testimony(notes).records())


class _Testimony:
    def __init__(self, notes: Sequence[Note]) -> None:
        self._notes = _with_deliveries(notes)
        self._lineages = {note.values[2] for note in notes if note.word == "start"}
        self._families: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
        for line in self._lineages:
            for pid in line:
                self._families[pid].append(line)
        self._kills: defaultdict[int, list[int]] = defaultdict(list)
        for note in notes:
            if note.word == "kill":
                self._kills[note.values[0]].append(note.at_ns)
        self._running: defaultdict[str, set[h.Key]] = defaultdict(set)
        """By job."""
        self._unsupervised: set[h.Key] = set()
        self._ran: dict[h.Key, tuple[str, str]] = {}

    def records(self) -> Iterator[h.Record]:
        for note in self._notes:
            yield from self._told(note.at_ns // 1_000_000, note)

    def _told(self, at_ms: int, note: Note) -> Iterable[h.Record]:
        word, values = note.word, note.values
        if word == "start":
            return self._start(at_ms, note)
        if word == "raw start":
            return self._raw_start(at_ms, *values)
        if word == "delivery":
            job_id, token, worker, attempt = values
            return [h.Pushed(at_ms, job_id, token, worker, attempt)]
        if word in ("stop", "raise"):
            return self._end(at_ms, word, values[0])
        if word == "kill":
            return [h.Died(at_ms, _name(line)) for line in self._families[values[0]]]
        if word == "gone":
            return [h.Died(at_ms, *values), *(h.Stopped(at_ms, each) for each in self._run_by(*values))]
        if word == "lapsed":
            return [h.Over(at_ms, each, values[1]) for each in self._run_by(values[0])]
        return [_RECORDS[word](at_ms, *values)] if word in _RECORDS else []

    def _run_by(self, worker: str) -> list[h.Key]:
        """Tokens that this worker is running."""
        return [
            token
            for tokens in self._running.values()
            for token in sorted(tokens)
            if self._ran[token][1] == worker
        ]

    def _raw_start(
        self, at_ms: int, job_id: str, token: h.Key, worker: str, attempt: int
    ) -> Iterator[h.Record]:
        """Nobody sees to a raw worker: that it is alone is not promised."""
        self._ran[token] = job_id, worker
        yield h.Started(at_ms, job_id, token, worker, False)

    def _start(self, at_ms: int, note: Note) -> Iterator[h.Record]:
        job_id, token, line, attempt, is_alone = note.values
        running = self._running[job_id]
        if is_alone or running & self._unsupervised:
            # What nobody sweeps may hold the lock for long: then it says nothing about the others.
            yield from (h.Stopped(at_ms, each) for each in sorted(running - self._unsupervised))
            running &= set() if is_alone else self._unsupervised
        running.add(token)
        self._ran[token] = job_id, _name(line)
        yield h.Pushed(at_ms, job_id, token, _name(line), attempt)
        is_supervised = self._is_supervised(line, note.at_ns)
        if not is_supervised:
            self._unsupervised.add(token)
        yield h.Started(at_ms, job_id, token, _name(line), is_supervised)

    def _end(self, at_ms: int, word: str, token: h.Key) -> Iterator[h.Record]:
        if token not in self._ran:
            # Its start was not noted whole: who is killed in the middle of a note has not begun.
            return
        job_id, worker = self._ran[token]
        self._running[job_id].discard(token)
        yield h.Stopped(at_ms, token)
        if word == "raise":
            yield h.Reached(at_ms, worker, token, "nack")

    def _is_supervised(self, line: Sequence[int], at_ns: int) -> bool:
        """Whether one of supervisor and zygote outlives the other by long enough."""
        above = [[kill for kill in self._kills[pid] if kill >= at_ns - TOGETHER_NS] for pid in line[-2:]]
        deaths = sorted(kills[0] for kills in above if kills)
        return not any(later - first < TOGETHER_NS for first, later in pairwise(deaths))


def _with_deliveries(notes: Sequence[Note]) -> list[Note]:
    """The notes, with one more for each delivery to a raw worker: not when it began, if it was away then.

    It was before any later delivery of that job.
    """
    earliest: dict[str, list[tuple[h.Key, int]]] = defaultdict(list)
    for note in notes:
        if note.word in ("start", "raw start"):
            earliest[note.values[0]].append((note.values[1], note.at_ns))
    deliveries: list[Note] = []
    for note in notes:
        if note.word == "raw start":
            later = [at_ns - 1 for token, at_ns in earliest[note.values[0]] if token > note.values[1]]
            deliveries.append(Note(min([note.at_ns, *later]), "delivery", note.values))
    return sorted([*deliveries, *notes], key=lambda note: note.at_ns)


_RECORDS: dict[str, Any] = {
    "asked": h.Asked,
    "answered": h.Enqueued,
    "told": h.Told,
    "crashed": h.Crashed,
    "calm": h.Calm,
    "sampled": h.Sampled,
    "silent": h.Silent,
    "heard": h.Heard,
    "reached": h.Reached,
    "confirmed": h.Confirmed,
}
"""Words whose values are those of a record."""


def _name(line: Sequence[int]) -> str:
    """Of what runs an attempt: the process and its parent, since pids come again."""
    return "/".join(map(str, line[:2]))
