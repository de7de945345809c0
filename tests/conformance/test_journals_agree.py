"""Random batches, ends and reboots leave both journals with the same content, whatever is asked of it."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.journals import KEEP_ALL, Bench, MemoryBench, SqliteBench, a_job, an_outcome

from stoker.broker.core.effects import Changes, OutcomeRow
from stoker.broker.core.job import Job, image
from stoker.broker.journal import Journal, Recovered, Retention
from stoker.proto.model import State

pytestmark = pytest.mark.slow

NUMBERS = st.integers(1, 6)
SMALL = st.integers(0, 50)
OUTCOMES = st.sampled_from(["ok", "error", "released", "crash"])
TIGHT = Retention(done_kept_ms=40, done_kept_max=1, dead_kept_ms=60, dead_kept_max=2)
TIGHT_BUT_LONG = Retention(done_kept_ms=10**9, done_kept_max=2, dead_kept_ms=10**9, dead_kept_max=1)


class Agreement(RuleBasedStateMachine):
    """The same done to both. Numbers are few, so that batches meet each other's jobs."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.benches: tuple[Bench, Bench] = (
            MemoryBench(),
            SqliteBench(Path(self._directory.name), synchronous="NORMAL"),
        )
        self.live: set[int] = set()
        self.boot, self.epoch = 1, 1
        self.boot_ms = self.started_ms = 1_000_000

    @initialize()
    def start(self) -> None:
        self._same_start("load")

    def _same_start(self, how: str) -> None:
        clocks = {"boot_id": f"boot-{self.boot}", "boot_ms": self.boot_ms, "wall_ms": self.boot_ms * 3}
        memory, sqlite = (told(getattr(bench, how)(**clocks)) for bench in self.benches)
        assert memory == sqlite
        self.epoch, self.started_ms = memory["epoch"], self.boot_ms

    @rule(
        jobs=st.dictionaries(NUMBERS, st.tuples(st.sampled_from(State), SMALL, st.booleans()), max_size=4),
        ended=st.lists(st.tuples(NUMBERS, st.integers(1, 40), OUTCOMES), max_size=6),
        dropped=st.dictionaries(NUMBERS, st.integers(0, 80), max_size=2),
        paused=st.dictionaries(st.sampled_from(["", "mail"]), st.booleans()),
        sequence=st.none() | SMALL,
    )
    def commit(
        self,
        jobs: dict[int, tuple[State, int, bool]],
        ended: list[tuple[int, int, str]],
        dropped: dict[int, int],
        paused: dict[str, bool],
        sequence: int | None,
    ) -> None:
        known = self.live | set(jobs)
        changes = Changes(
            images=[image(self._job(number, *fields)) for number, fields in jobs.items()],
            payloads=[(number, b"p" * number) for number in jobs if number not in self.live],
            outcomes=[row(*each) for each in ended if each[0] in known],
            deleted=[
                (number, f"job-{number}", b"h" * 16, self.boot_ms + kept if kept else 0)
                for number, kept in dropped.items()
                if number in known
            ],
            paused=list(paused.items()),
            sequence=sequence,
        )
        for bench in self.benches:
            bench.journal.commit(changes)
        self.live = known - set(dropped)

    def _job(self, number: int, state: State, moved: int, flag: bool) -> Job:
        return a_job(
            number,
            state=state,
            epoch=self.epoch,
            queue="mail" if flag else "other",
            headers={"n": str(moved)} if flag else None,
            cancelling=flag,
            created_boot_ms=self.boot_ms - moved,
            # Of this start, so not before it: that is what keeps finished rows in order.
            finished_boot_ms=max(self.boot_ms - moved, self.started_ms),
        )

    @rule(how=st.sampled_from(["reopen", "crash"]), passed_ms=SMALL, reboots=st.booleans())
    def restart(self, how: str, passed_ms: int, reboots: bool) -> None:
        self.boot += reboots
        self.boot_ms = passed_ms + 1 if reboots else self.boot_ms + passed_ms
        self._same_start(how)

    @rule(passed_ms=SMALL | st.just(100_000), limit=st.integers(0, 3))
    def forget(self, passed_ms: int, limit: int) -> None:
        self.boot_ms += passed_ms
        memory, sqlite = (
            bench.journal.forget_ids(boot_ms=self.boot_ms, limit=limit) for bench in self.benches
        )
        assert memory == sqlite

    @invariant()
    def answers_agree(self) -> None:
        memory, sqlite = (answers(bench.journal, self.boot_ms) for bench in self.benches)
        assert memory == sqlite

    def teardown(self) -> None:
        for bench in self.benches:
            bench.journal.close()
        self._directory.cleanup()


def row(number: int, attempt: int, outcome: str) -> OutcomeRow:
    return an_outcome(number, attempt, outcome, result=b"r" if outcome == "ok" else None)


def told(recovered: Recovered) -> dict[str, Any]:
    """All of it, comparable."""
    return {
        "epoch": recovered.epoch,
        "sequence": recovered.sequence,
        "starts": dict(recovered.starts),
        "jobs": [image(job) for job in recovered.jobs],
        "finished": dict(recovered.finished_counts),
        "paused": recovered.paused,
        "ids_kept": recovered.ids_kept,
        "ended": list(recovered.ended),
    }


def answers(journal: Journal, boot_ms: int) -> list[Any]:
    """Everything a journal can be asked."""
    found = [journal.find(f"job-{number}", history=True, payload=True) for number in range(1, 7)]
    listed = journal.list_jobs(queue="mail", state=None, kind=None, after=1, limit=3)
    return [
        [(each.job and image(each.job), each.remembered, each.payload, each.result) for each in found],
        [list(each.history) for each in found],
        [image(job) for job in listed],
        list(journal.dead_ids("mail", 3)),
        [
            list(journal.prunable(kept, boot_ms=boot_ms, limit=4))
            for kept in (TIGHT, TIGHT_BUT_LONG, KEEP_ALL)
        ],
        journal.statistics()["ids_kept"],
    ]


TestAgreement = Agreement.TestCase
# Each step asks both journals everything, and many start them anew: fewer and shorter runs than usual.
TestAgreement.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=12)
