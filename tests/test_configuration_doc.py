"""`docs/configuration.md` says what the code does."""

import click
from support import limits_table, sources

from stoker.cli.daemons import broker
from stoker.config.settings import QUEUE_KEYS

PAGE = (sources.ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_page_has_the_table_of_limits() -> None:
    assert limits_table.table() in PAGE, (
        "paste what `PYTHONPATH=tests .venv/bin/python -m support.limits_table` prints"
    )


def test_page_names_every_setting_of_a_queue() -> None:
    assert [key for key in QUEUE_KEYS if f"`{key}`" not in PAGE] == []


def test_page_names_every_flag_of_the_broker() -> None:
    options = [option for option in broker.params if isinstance(option, click.Option) and not option.hidden]
    assert [flag for option in options for flag in option.opts if f"`{flag}" not in PAGE] == []
