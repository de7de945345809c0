"""Journals of this schema, to be kept: every later release must be able to start on them.

    PYTHONPATH=tests .venv/bin/python -m support.journal_samples

writes `tests/data/journals/<schema version>/`: a journal that was closed, one that was killed with its log
beside it, and what each of them holds as JSON. Run it once for each new SCHEMA_VERSION, at its release, and
never again for an old one: the files are what people have on their disks.
"""

import base64
import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stoker.broker.core.effects import Changes
from stoker.broker.core.job import COLUMNS, Image
from stoker.broker.sqlite.schema import SCHEMA_VERSION
from stoker.proto.model import State

from .faults.witness import Content, ExaminedJournal
from .journals import BOOT_MS, a_finished_image, an_image, an_outcome, load, stored

SAMPLES = Path(__file__).parents[1] / "data" / "journals"

LATER_MS = BOOT_MS + 5000


def first_batches() -> Iterable[Changes]:
    """Every state, every table, values of every type."""
    yield Changes(
        kinds=[("send", "web", {"queue": "mail", "attempts_max": 3}), ("digest", "night", {})],
        paused=[("reports", True), ("", True), ("mail", True)],
        sequence=100,
    )
    yield stored(
        an_image(1, headers={"trace": "ä \u2028 \"'"}, priority=-5, queue_given=True, priority_given=True),
        an_image(2, state=State.SCHEDULED, due_boot_ms=LATER_MS, delay_ms=5000, attempt=2, charged=1),
        an_image(3, state=State.SCHEDULED, run_at_ms=1_900_000_000_000, id_by_caller=False),
        an_image(4, resolved=False, kind="unheard", queue="default", expires_boot_ms=LATER_MS, expires_ms=9000),
        an_image(5, suspect=True, crashes=1, releases=3, attempts_max=7, crashes_max=4, time_limit_ms=60_000),
        an_image(6, lease_ms=1000, backoff_ms=10, backoff_cap_ms=2**53, reason="x" * 5000),
        an_image(7), an_image(8), an_image(9), an_image(10), an_image(11),
    )  # fmt: skip
    yield Changes(
        images=[
            an_image(
                7,
                state=State.LEASED,
                attempt=1,
                token_epoch=1,
                token_counter=4,
                worker="boot-1/4026531836/321/77/w1-7d9981f5",
                ticket=bytes(range(16)),
                supervisor="boot-1/4026531836/300/70/s1",
                leased_at_ms=1_700_000_001_000,
                cancelling=True,
            ),
            a_finished_image(
                8, State.DONE, LATER_MS, attempt=2, outcome="ok", finished_at_ms=1_700_000_005_000
            ),
            a_finished_image(
                9, State.DEAD, LATER_MS, outcome="permanent", reason="permanent: no such address"
            ),
            a_finished_image(10, State.CANCELLED, LATER_MS, reason="cancelled"),
            a_finished_image(11, State.DONE, LATER_MS, outcome="ok"),
        ],
        outcomes=[
            an_outcome(8, 1, "crash", signal=9, memory_peak_bytes=2**40, cpu_ms=12, report="a\ntraceback"),
            an_outcome(8, 2, "ok", result=b"\x00\xffresult", output="printed\n", duration_ms=1500),
            an_outcome(9, 1, "permanent", reason="no such address", status=3),
        ],
    )
    yield Changes(
        deleted=[(11, "job-11", b"h" * 16, LATER_MS + 86_400_000), (99, "gone", b"g" * 16, 0)],
        paused=[("mail", False)],
    )


def last_batches() -> Iterable[Changes]:
    """What came after the last checkpoint: in the killed journal it is in the log alone."""
    yield stored(an_image(101, kind="digest", queue="reports", payload_bytes=20_000, epoch=2))
    yield Changes(
        images=[
            an_image(1, state=State.LEASED, attempt=1, token_epoch=2, token_counter=1, worker="w", epoch=2)
        ],
        sequence=1101,
    )


def build(directory: Path) -> None:
    """Make all files of this schema in an empty directory."""
    path = str(directory / "closed.db")
    journal = ExaminedJournal(path)
    load(journal)
    for batch in first_batches():
        journal.commit(batch)
    journal.close()
    journal = ExaminedJournal(path)
    load(journal, boot_id="boot-2", boot_ms=70_000, wall_ms=1_700_000_100_000)
    (directory / "closed.json").write_text(as_json(journal.content()))
    for batch in last_batches():
        journal.commit(batch)
    for end in ("", "-wal"):
        shutil.copyfile(f"{path}{end}", directory / f"killed.db{end}")
    (directory / "killed.json").write_text(as_json(journal.content()))
    journal.kill()
    for file in directory.glob("closed.db-wal"):
        file.unlink()


def as_json(content: Content) -> str:
    """A content for people and for comparison: jobs by the names of their columns, bytes as base64."""
    named: dict[str, Any] = {**content, "jobs": [_named(job) for _, job in sorted(content["jobs"].items())]}
    named["paused"] = sorted(content["paused"])
    return json.dumps(named, indent=1, sort_keys=True, default=_encoded) + "\n"


def _named(job: Image) -> dict[str, Any]:
    return dict(zip(COLUMNS, job, strict=True))


def _encoded(value: Any) -> str:
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()


def main() -> None:
    """Write the samples of this schema, unless they are there."""
    directory = SAMPLES / str(SCHEMA_VERSION)
    if directory.exists():
        sys.exit(f"{directory} is there already, and what is there stays as it is")
    directory.mkdir(parents=True)
    build(directory)


if __name__ == "__main__":
    main()
