"""The demo's handlers, called as plain functions."""

import hashlib
from pathlib import Path

import pytest

from stoker.demo.tasks import PLANNED_FAILURES, PlannedFailure, digest, digest_after_failures


@pytest.mark.parametrize(("data", "lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"\n\n", 2)])
def test_digest_counts_lines(tmp_path: Path, data: bytes, lines: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert digest(str(path)) == (hashlib.sha256(data).hexdigest(), lines)


def test_planned_failures_come_first_and_then_no_more(tmp_path: Path) -> None:
    path, tally = tmp_path / "file", tmp_path / "tally"
    path.write_bytes(b"a\n")
    for _ in range(PLANNED_FAILURES):
        with pytest.raises(PlannedFailure):
            digest_after_failures(str(path), str(tally))
    assert digest_after_failures(str(path), str(tally)) == digest(str(path))
