"""The broker's flags: each has its setting, and `up` passes on exactly what was given."""

from typing import Any

import attrs
import pytest

from stoker.cli.brokerflags import as_arguments, settings
from stoker.cli.main import run
from stoker.config.settings import BrokerSettings, SettingError

FLAGS: dict[str, Any] = {
    "synchronous": "NORMAL",
    "done_kept": "1h",
    "done_kept_max": "10",
    "dead_kept": "2d",
    "dead_kept_max": "20",
    "reconnect_grace": "3s",
    "supervisor_grace": "4s",
    "kill_grace": "500ms",
    "heartbeat_max": "1s",
    "low_water": "64MiB",
    "queues": ("mail:jobs_max=100,overflow=wait",),
}


def test_every_flag_has_its_setting() -> None:
    made = attrs.asdict(settings(FLAGS, socket="/s", data="/d"), recurse=False)
    plain = attrs.asdict(BrokerSettings(socket="/s", data="/d"), recurse=False)
    unchanged = {name for name, value in made.items() if value == plain[name]}
    assert unchanged == {"socket", "data", "queue_default"}
    assert (made["done_kept_ms"], made["kill_grace_ms"], made["low_water_bytes"]) == (
        3_600_000,
        500,
        64 * 2**20,
    )
    assert made["queues"]["mail"].jobs_max == 100


def test_flags_that_were_not_given_keep_the_defaults() -> None:
    nothing = dict.fromkeys(FLAGS)
    assert settings(nothing, socket="/s", data="/d") == BrokerSettings(socket="/s", data="/d")
    assert as_arguments(nothing) == []


def test_flags_are_passed_on_as_they_were_given() -> None:
    arguments = as_arguments(FLAGS)
    assert "--kill-grace=500ms" in arguments
    assert "--queue=mail:jobs_max=100,overflow=wait" in arguments
    assert len(arguments) == len(FLAGS)


@pytest.mark.parametrize(
    ("name", "text"),
    [("done_kept", "5"), ("done_kept_max", "many"), ("low_water", "1MB"), ("synchronous", "OFF")],
)
def test_wrong_flag_is_refused_by_its_name(name: str, text: str) -> None:
    with pytest.raises(SettingError, match=name.replace("_", ".")):
        settings({name: text}, socket="/s", data="/d")


def test_help_tells_what_a_value_is_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--kill-grace DURATION From the signal that a handler can answer to SIGKILL. Default: 5s." in said
    assert "--low-water SIZE" in said


@pytest.mark.parametrize("verb", [["broker"], ["up", "tasks:app"]])
@pytest.mark.parametrize("flag", ["--low-water=1MB", "--queue=mail", "--socket=/" + "x" * 107])
def test_wrong_setting_is_exit_78(verb: list[str], flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*verb, flag]) == 78
    assert len(capsys.readouterr().err.splitlines()) == 1
