"""Journals that earlier releases wrote, and this one: each must load for ever, with all that it holds.

The files are never made anew (see `support/journal_samples.py`). Who changes the schema adds a sample of
the new one, and finds out here whether the old ones are brought up to it.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faults.witness import ExaminedJournal
from support.journal_samples import SAMPLES, as_json, build
from support.journals import load, sql

from stoker.broker.refusals import JournalNewerError
from stoker.broker.sqlite import SqliteJournal
from stoker.broker.sqlite.schema import SCHEMA_VERSION

VERSIONS = sorted(int(path.name) for path in SAMPLES.iterdir())


@pytest.fixture(params=VERSIONS, ids=lambda version: f"schema-{version}")
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Copies of the samples of one version."""
    return Path(shutil.copytree(SAMPLES / str(request.param), tmp_path / "samples"))


@pytest.fixture(params=["closed", "killed"])
def journal(request: pytest.FixtureRequest, directory: Path) -> Iterator[ExaminedJournal]:
    journal = ExaminedJournal(str(directory / f"{request.param}.db"))
    yield journal
    journal.close()


def test_sample_holds_what_it_held(journal: ExaminedJournal) -> None:
    load(journal)
    assert as_json(journal.content()) == Path(journal.path).with_suffix(".json").read_text()
    assert journal.faults() == []


def test_sample_is_gone_on_with(journal: ExaminedJournal) -> None:
    recovered = load(journal)
    assert recovered.epoch == (2 if Path(journal.path).stem == "closed" else 3)
    assert [job.number for job in recovered.jobs if job.number <= 100] == [1, 2, 3, 4, 5, 6, 7]
    assert recovered.finished_counts == {("mail", "cancelled"): 1, ("mail", "dead"): 1, ("mail", "done"): 1}
    assert recovered.paused == {"", "reports"}
    assert [op for _, _, op in recovered.ended] == ["", "ack", "nack"]


def test_what_the_log_alone_holds_is_there(directory: Path) -> None:
    journal = SqliteJournal(str(directory / "killed.db"))
    recovered = load(journal)
    assert (recovered.jobs[0].state, recovered.jobs[0].token) == ("leased", (2, 1))
    assert recovered.jobs[-1].number == 101
    assert recovered.sequence == 1101
    journal.close()


def test_sample_with_a_newer_version_is_refused_and_left_as_it_is(directory: Path) -> None:
    path = directory / "closed.db"
    sql(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}", "PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    with pytest.raises(JournalNewerError, match="later release"):
        load(SqliteJournal(str(path)))
    assert path.read_bytes() == before


def test_sample_of_this_schema_is_what_this_release_writes(tmp_path: Path) -> None:
    """Else the schema was changed, and its version was not."""
    build(tmp_path)
    for name in ("closed.json", "killed.json"):
        assert (tmp_path / name).read_text() == (SAMPLES / str(SCHEMA_VERSION) / name).read_text()
    tables = "SELECT name, sql FROM sqlite_schema ORDER BY name"
    kept = Path(shutil.copy(SAMPLES / str(SCHEMA_VERSION) / "closed.db", tmp_path / "kept.db"))
    assert sql(tmp_path / "closed.db", tables) == sql(kept, tables)
