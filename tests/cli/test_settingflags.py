"""The daemons' flags: one for each setting, read with file and environment, passed on as they were given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from stoker.cli.main import run
from stoker.cli.settingflags import as_arguments, effective_of, setting_flags
from stoker.cli.up import broker_arguments, pool_arguments
from stoker.config.table import ACCESS, BROKER, LOG, POOL, QUEUES, SETTINGS, TABLES, Setting

FLAGS: dict[str, Any] = {
    "synchronous": "NORMAL",
    "done_kept": "1h",
    "kill_grace": "500ms",
    "low_water": "64MiB",
    "access_submit": "alice,@ops",
    "queue_rules": ("mail:jobs_max=100,overflow=wait", "reports:lease=5s"),
    "workers": "3",
    "name": "shop",
    "config": "/dev/null",
}


def parameters(*tables: str) -> dict[str, list[str]]:
    @click.command()
    @setting_flags(*tables)
    def command(**flags: Any) -> None:
        pass

    return {str(option.name): option.opts for option in command.params}


def test_every_setting_has_its_flag() -> None:
    found = [flag for flags in parameters(*TABLES).values() for flag in flags]
    assert set(found) == {"--config", "--queue", *(setting.flag for setting in SETTINGS)}


def test_pool_has_its_own_flags_and_those_that_say_where_its_broker_is() -> None:
    found = {flag for flags in parameters(POOL).values() for flag in flags}
    assert found == {
        "--config",
        "--socket",
        "--data",
        "--low-water",
        *(s.flag for s in SETTINGS if s.table == POOL),
    }


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_flag_reaches_its_setting(setting: Setting) -> None:
    (name,) = [name for name, flags in parameters(*TABLES).items() if flags == [setting.flag]]
    effective = effective_of({"config": None, name: "no\0thing"})
    assert [line.split(":")[0] for line in effective.mistakes] == [setting.flag]


def test_flags_are_passed_on_as_they_were_given() -> None:
    assert as_arguments(FLAGS, BROKER, QUEUES, ACCESS) == [
        "--synchronous=NORMAL",
        "--done-kept=1h",
        "--kill-grace=500ms",
        "--low-water=64MiB",
        "--access-submit=alice,@ops",
        "--queue=mail:jobs_max=100,overflow=wait",
        "--queue=reports:lease=5s",
    ]
    assert as_arguments(FLAGS, POOL) == ["--workers=3", "--name=shop"]


def test_up_tells_both_programs_the_file_and_the_places_it_found_and_the_flags_it_was_given() -> None:
    flags = FLAGS | {"socket": "/s", "data": "/d", "config": "/etc/stoker/stoker.toml", "queue_rules": ()}
    assert broker_arguments(flags) == [
        "--config=/etc/stoker/stoker.toml",
        *("--socket=/s", "--data=/d", "--synchronous=NORMAL", "--done-kept=1h", "--kill-grace=500ms"),
        *("--low-water=64MiB", "--access-submit=alice,@ops"),
    ]
    assert pool_arguments(flags) == [
        "--config=/etc/stoker/stoker.toml",
        *("--socket=/s", "--data=/d", "--low-water=64MiB", "--workers=3", "--name=shop"),
    ]


def test_up_without_a_file_tells_both_programs_that_there_is_none() -> None:
    flags = {"socket": "/s", "config": None}
    assert broker_arguments(flags) == ["--config=/dev/null", "--socket=/s"]
    assert pool_arguments(flags) == ["--config=/dev/null", "--socket=/s"]


def test_flags_that_were_not_given_are_not_passed_on() -> None:
    assert as_arguments(dict.fromkeys(FLAGS), *TABLES) == []


def test_form_of_the_log_is_passed_on_to_both_programs() -> None:
    flags = {"socket": "/s", "config": None, "log_format": "json"}
    assert broker_arguments(flags)[-1] == pool_arguments(flags)[-1] == "--log-format=json"
    assert as_arguments(flags, LOG) == ["--log-format=json"]


def test_file_that_the_flag_names_is_read(tmp_path: Path) -> None:
    path = tmp_path / "stoker.toml"
    path.write_text("[pool]\nworkers = 3\n")
    effective = effective_of({"config": str(path)})
    assert effective.values["pool.workers"] == (3, f"{path}:2")


def test_help_tells_what_a_value_is_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--kill-grace DURATION From the signal that a handler can answer to SIGKILL. Default: 5s." in said
    assert "--low-water SIZE" in said
    assert "Default: STOKER_SOCKET, or where this user's broker listens." in said


DAEMONS = [["broker"], ["pool", "tasks:app"], ["up", "tasks:app"], ["config"]]


@pytest.mark.parametrize("verb", DAEMONS)
@pytest.mark.parametrize("flag", ["--socket=/" + "x" * 107, "--config=/nowhere/stoker.toml"])
def test_wrong_setting_is_exit_78_on_one_line(
    verb: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb, flag]) == 78
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)


Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> str:
        path = tmp_path / "stoker.toml"
        path.write_text(text)
        return f"--config={path}"

    return write


@pytest.mark.parametrize("verb", DAEMONS)
def test_every_daemon_checks_the_whole_file_and_says_all_at_once(
    verb: list[str], write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb, write("[broker]\nlow_water = '1MB'\n[pool]\nworkers = 0\n[nonsense]\n")]) == 78
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[2] for line in lines] == ["broker.low_water", "pool.workers", "nonsense"]


@pytest.mark.parametrize("flag", ["--low-water=1MB", "--queue=mail", "--done-kept=5", "--access-submit=a b"])
@pytest.mark.parametrize("verb", [["broker"], ["up", "tasks:app"]])
def test_wrong_flag_of_the_broker_is_exit_78(
    verb: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb, flag]) == 78
    assert capsys.readouterr().err.startswith(f"stoker: {flag.split('=')[0]}: ")


@pytest.mark.parametrize("flag", ["--workers=0", "--drain=5", "--name=", "--group=daemon"])
@pytest.mark.parametrize("verb", [["pool", "tasks:app"], ["up", "tasks:app"]])
def test_wrong_flag_of_the_pool_is_exit_78(
    verb: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb, flag]) == 78
    assert capsys.readouterr().err.startswith(f"stoker: {flag.split('=')[0]}: ")


def test_user_that_nobody_can_become_is_exit_78(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pool", "tasks:app", "--user", "no-such-one"]) == 78
    assert capsys.readouterr().err.startswith("stoker: --user: no user 'no-such-one' is known")


def test_file_cannot_smuggle_control_characters_to_the_terminal(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["config", write('"\\u001b[2J" = 1\n')]) == 78
    assert "\x1b" not in capsys.readouterr().err
