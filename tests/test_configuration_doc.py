"""`docs/configuration.md` says what the code does."""

import tomllib

import click
import pytest
from support import limits_table, settings_table, sources

from stoker.cli.config import config
from stoker.config.file import File
from stoker.config.sources import gather

PAGE = (sources.ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_page_has_the_table_of_limits() -> None:
    assert limits_table.table() in PAGE, (
        "paste what `PYTHONPATH=tests .venv/bin/python -m support.limits_table` prints"
    )


@pytest.mark.parametrize("name", settings_table.TABLES)
def test_page_has_the_table_of_settings(name: str) -> None:
    assert settings_table.table(name) in PAGE, (
        "paste what `PYTHONPATH=tests .venv/bin/python -m support.settings_table` prints"
    )


def test_page_names_every_flag_of_the_settings() -> None:
    options = [option for option in config.params if isinstance(option, click.Option)]
    flags = [flag for option in options for flag in option.opts if flag != "--json"]
    assert [flag for flag in flags if f"`{flag}" not in PAGE] == []


def test_file_on_the_page_is_right() -> None:
    text = PAGE.split("```toml\n")[1].split("```")[0]
    file = File("stoker.toml", tomllib.loads(text), {})
    assert gather({}, (), {}, file).mistakes == []
