"""How far a job is, in words."""

import pytest

from stoker.proto.progress import FINE_TOTAL, progress_text


@pytest.mark.parametrize(
    ("done", "total", "text", "shown"),
    [
        (40, 100, "", "40 %"),
        (3, 12, "pages", "3 of 12 (25 %): pages"),
        (1250, FINE_TOTAL, "", "12.5 %"),
        (13, 12, "", "13 of 12 (108 %)"),
        (0, 0, "", "0"),
        (5, None, "", "5"),
        (None, None, "indexing", "indexing"),
        (None, 100, "", ""),
    ],
)
def test_progress_is_told_in_words(done: int | None, total: int | None, text: str, shown: str) -> None:
    assert progress_text(done, total, text) == shown
