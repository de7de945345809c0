"""What the demo found: every answer against the demo's own, and every second delivery explained.

A duplicate delivery is one that follows an attempt which ended by `crash`, `lost`, `released` or
`shutdown`: the handler may have run, and runs again. A retry after an error of the handler is none.
The closing line has a fixed form, because scripts read it.
"""

from collections.abc import Mapping
from typing import Any

import attrs

REPEATING = frozenset({"crash", "lost", "released", "shutdown"})


@attrs.define
class Verdict:
    """Counts of one run, filled in job by job. `problems` says in words what went wrong."""

    jobs: int
    slots: int
    planned_failures: int
    """Failed attempts that there should be."""
    done: int = 0
    dead: int = 0
    lost: int = 0
    wrong: int = 0
    failures: int = 0
    duplicates: list[str] = attrs.Factory(list[str])
    workers_killed: int = 0
    brokers_killed: int = 0
    problems: list[str] = attrs.Factory(list[str])

    def count_missing(self, id: str, why: str) -> None:
        """An acknowledged job that the broker does not have, or that never ended."""
        self.lost += 1
        self.problems.append(f"lost job={id}: {why}")

    def count_ended(self, id: str, state: str, reason: str, *, is_right: bool) -> None:
        """A job in a final state, and whether its answer is the one expected."""
        if state != "done":
            self.dead += 1
            self.problems.append(f"{state} job={id}: {reason!a}")
            return
        self.done += 1
        if not is_right:
            self.wrong += 1
            self.problems.append(f"wrong answer job={id}")

    def count_attempts(self, job: Mapping[str, Any]) -> None:
        """The attempts of a job as `show` gives them, oldest first."""
        history = list(job.get("history", ()))
        for earlier in history[:-1]:
            token = f"{earlier['token_epoch']}.{earlier['token_counter']}"
            if earlier["outcome"] in REPEATING:
                why = f"{earlier['outcome']} {earlier['reason']!a}"
                self.duplicates.append(f"duplicate job={job['id']} after token={token} reason={why}")
            else:
                self.failures += 1

    def judge(self) -> bool:
        """Whether everything holds; what does not is added to `problems`."""
        if self.failures != self.planned_failures:
            self.problems.append(f"{self.failures} failed attempts, {self.planned_failures} were planned")
        if len(self.duplicates) > self.slots:
            self.problems.append(f"more duplicates than the {self.slots} slots can explain")
        if (self.workers_killed, self.brokers_killed) != (1, 1):
            self.problems.append("one worker and one broker should have been killed")
        return self.done == self.jobs and not self.problems

    def line(self, seconds: float) -> str:
        """The closing line."""
        return (
            f"jobs={self.jobs} done={self.done} dead={self.dead} lost={self.lost} wrong={self.wrong}"
            f" duplicates={len(self.duplicates)} workers_killed={self.workers_killed}"
            f" brokers_killed={self.brokers_killed} seconds={seconds:.1f}"
        )
