"""`docs/configuration.md` says what the code does."""

from support import limits_table, sources

from stoker.config.settings import QUEUE_KEYS

PAGE = (sources.ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_page_has_the_table_of_limits() -> None:
    assert limits_table.table() in PAGE, (
        "paste what `PYTHONPATH=tests .venv/bin/python -m support.limits_table` prints"
    )


def test_page_names_every_setting_of_a_queue() -> None:
    assert [key for key in QUEUE_KEYS if f"`{key}`" not in PAGE] == []
