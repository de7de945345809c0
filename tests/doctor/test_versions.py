"""Libraries with a known fault are named, with what to install."""

import pytest

from stoker.doctor.finding import Finding, Level
from stoker.doctor.versions import Versions, check_versions, installed

GOOD = Versions((3, 12, 1), (3, 54, 1), "3.54.1.0", (1, 2, 4), "0.35.0")


def errors(found: Versions) -> list[Finding]:
    return [finding for finding in check_versions(found) if finding.level is Level.ERROR]


def test_all_versions_are_told_where_nothing_is_wrong() -> None:
    (finding,) = check_versions(GOOD)
    assert finding.level is Level.OK
    assert all(text in finding.what for text in ("3.12.1", "SQLite 3.54.1", "msgpack 1.2.4", "trio 0.35.0"))


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (GOOD._replace(python=(3, 10, 9)), "Python 3.10.9 is older than 3.11"),
        (GOOD._replace(sqlite=(3, 51, 2)), "SQLite 3.51.2 is older than 3.51.3"),
        (GOOD._replace(msgpack=(1, 0, 3)), "msgpack 1.0.3 is older than 1.2.1"),
    ],
    ids=["Python", "SQLite", "msgpack"],
)
def test_what_is_too_old_is_an_error(found: Versions, what: str) -> None:
    (finding,) = errors(found)
    assert finding.what == what
    assert "later" in finding.advice


def test_this_environment_is_new_enough() -> None:
    assert errors(installed()) == []
