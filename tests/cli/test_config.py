"""`stoker config`: what is set, by whom, and the most memory that the pool can take."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.config import memory_text
from stoker.cli.main import run
from stoker.config.settings import PoolSettings
from stoker.config.table import SETTINGS

FILE = """\
[broker]
socket = "/run/shop/broker.sock"
data = "/srv/shop"
done_kept = "2h"
[queues.mail]
jobs_max = 10
[access]
submit = ["root", "@0"]
"""

Config = Callable[..., dict[str, Any]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "stoker.toml"
    path.write_text(FILE)
    return path


@pytest.fixture
def config(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("STOKER_CONFIG", str(path))
    monkeypatch.delenv("STOKER_SOCKET", raising=False)

    def config(*arguments: str) -> dict[str, Any]:
        assert run(["config", "--json", *arguments]) == 0
        report: dict[str, Any] = json.loads(capsys.readouterr().out)
        return report

    return config


def test_every_setting_is_there_with_its_origin(config: Config) -> None:
    settings = config()["settings"]
    assert {setting.name for setting in SETTINGS} <= settings.keys()
    assert all(entry.keys() == {"value", "from"} for entry in settings.values())


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("broker.socket", "/run/shop/broker.sock", 2),
        ("broker.done_kept", "2h", 4),
        ("queues.mail.jobs_max", 10, 6),
        ("access.submit", ["root", "@0"], 8),
    ],
)
def test_value_of_the_file_comes_with_its_line(
    config: Config, path: Path, name: str, value: object, line: int
) -> None:
    assert config()["settings"][name] == {"value": value, "from": f"{path}:{line}"}


def test_value_of_a_variable_and_of_a_flag_comes_with_its_name(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_BROKER_DONE_KEPT", "3h")
    settings = config("--workers", "3", "--queue", "mail:jobs_max=1")["settings"]
    assert settings["broker.done_kept"] == {"value": "3h", "from": "STOKER_BROKER_DONE_KEPT"}
    assert settings["pool.workers"] == {"value": 3, "from": "--workers"}
    assert settings["queues.mail.jobs_max"] == {"value": 1, "from": "--queue"}
    assert settings["broker.low_water"] == {"value": "32MiB", "from": "default"}


def test_what_is_printed_as_json_can_be_a_file(config: Config, path: Path) -> None:
    settings = config()["settings"]
    lines = ["[broker]"]
    for name, entry in settings.items():
        table, _, key = name.partition(".")
        if table == "broker" and entry["value"] is not None:
            lines.append(f"{key} = {json.dumps(entry['value'])}")
    path.write_text("\n".join(lines))
    again = config()["settings"]
    assert {name: entry["value"] for name, entry in again.items() if name.startswith("broker.")} == {
        name: entry["value"] for name, entry in settings.items() if name.startswith("broker.")
    }


def test_file_and_warnings_are_told(config: Config, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_POOL_WORKER", "3")
    report = config()
    assert report["file"] == str(path)
    assert ["STOKER_POOL_WORKERS?" in warning for warning in report["warnings"]] == [True]


def test_people_get_a_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--config", str(path), "--workers", "2"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["setting", "value", "from"]
    assert ["broker.done_kept", "2h", f"{path}:4"] in lines
    assert ["pool.workers", "2", "--workers"] in lines
    assert ["pool.name", "(APP)", "default"] in lines
    assert ["access.work", "nobody", "default"] in lines


def test_mistakes_are_exit_78_and_nothing_is_printed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text('[access]\nsubmit = ["no-such-one"]\n[pool]\nworkers = 0\n')
    assert run(["config", "--config", str(path)]) == 78
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"stoker: {path}:4: pool.workers: 0 is not a number from 1 to 1024",
        f"stoker: {path}:2: access.submit: no user 'no-such-one' is known on this host",
    ]


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (None, "no limit (3 workers, no limit each)"),
        (512 * 2**20, "1536MiB (3 workers, 512MiB each)"),
    ],
)
def test_most_memory_of_the_pool_is_told(limit: int | None, text: str) -> None:
    assert memory_text(PoolSettings(socket="/s", workers=3, memory_limit_bytes=limit)) == text
