"""Who said what: the later source wins, key by key, and all mistakes are said at once."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from stoker.config.file import File, lines_of
from stoker.config.mistakes import SettingError
from stoker.config.sources import Effective, Said, gather, path_of_broker
from stoker.config.table import SETTINGS, Setting
from stoker.proto import limits
from stoker.proto.model import Overflow


def a_file(text: str) -> File:
    return File("/f.toml", tomllib.loads(text), lines_of(text))


def gathered(
    text: str = "",
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str | None] | None = None,
    queues: Sequence[str] = (),
) -> Effective:
    return gather(flags or {}, queues, environ or {}, a_file(text))


def mistakes(**sources: Any) -> list[str]:
    return gathered(**sources).mistakes


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_what_nobody_says_is_the_default(setting: Setting) -> None:
    assert gather({}, (), {}, None).values[setting.name] == Said(setting.default, "default")


FILE = '[broker]\nkill_grace = "1s"\n'
ENVIRON = {"STOKER_BROKER_KILL_GRACE": "2s"}
FLAGS = {"broker.kill_grace": "3s"}


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ({"text": FILE}, Said(1000, "/f.toml:2")),
        ({"text": FILE, "environ": ENVIRON}, Said(2000, "STOKER_BROKER_KILL_GRACE")),
        ({"text": FILE, "environ": ENVIRON, "flags": FLAGS}, Said(3000, "--kill-grace")),
        ({"text": FILE, "environ": {"STOKER_BROKER_KILL_GRACE": ""}}, Said(1000, "/f.toml:2")),
        ({"text": FILE, "flags": {"broker.kill_grace": None}}, Said(1000, "/f.toml:2")),
    ],
)
def test_later_source_wins(sources: dict[str, Any], said: Said) -> None:
    effective = gathered(**sources)
    assert effective.values["broker.kill_grace"] == said
    assert effective.mistakes == []


def test_sources_are_combined_key_by_key() -> None:
    effective = gathered(FILE, {"STOKER_POOL_WORKERS": "3"}, {"pool.drain": "1s"})
    assert [effective.value(name) for name in ("broker.kill_grace", "pool.workers", "pool.drain")] == [
        1000,
        3,
        1000,
    ]


def test_queues_are_combined_key_by_key() -> None:
    effective = gathered(
        '[queues.mail]\njobs_max = 1\nlease = "1s"\ndead_max = 1\n',
        {"STOKER_QUEUES": "mail:jobs_max=2,lease=2s reports:overflow=wait"},
        queues=["mail:jobs_max=3"],
    )
    assert effective.queues == {
        "mail": {
            "jobs_max": Said(3, "--queue"),
            "lease": Said(2000, "STOKER_QUEUES"),
            "dead_max": Said(1, "/f.toml:4"),
        },
        "reports": {"overflow": Said(Overflow.WAIT, "STOKER_QUEUES")},
    }


def test_queue_flag_sets_limits_and_policy() -> None:
    effective = gathered(queues=["mail:jobs_max=100,bytes_max=1MiB,overflow=wait,lease=5s,priority=-3"])
    values = {key: said.value for key, said in effective.queues["mail"].items()}
    assert values == {
        "jobs_max": 100,
        "bytes_max": limits.MIB,
        "overflow": Overflow.WAIT,
        "lease": 5000,
        "priority": -3,
    }


def test_queue_name_may_hold_colons() -> None:
    assert list(gathered(queues=["a:b:jobs_max=1"]).queues) == ["a:b"]


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("mail", "'mail' is not like mail:"),
        ("mail:", "queue mail: : unknown; known are jobs_max"),
        (":jobs_max=1", "is not like"),
        ("ma il:jobs_max=1", "is not like"),
        ("mail:jobs=1", "queue mail: jobs: unknown; did you mean jobs_max?"),
        ("mail:jobs_max=x", "queue mail: jobs_max: 'x' is not a number from 1 to"),
        ("mail:jobs_max=-1", "queue mail: jobs_max: '-1' is not a number from 1 to"),
        ("mail:jobs_max=9007199254740993", "queue mail: jobs_max: '9007199254740993'"),
        ("mail:jobs_max=1,jobs_max=2", "queue mail: jobs_max: given twice"),
        ("mail:overflow=drop", "queue mail: overflow: 'drop' is not one of reject, wait, dead"),
        ("mail:lease=1ms", "queue mail: lease: '1ms' is not a duration such as"),
        ("mail:lease=30", "'30' is not a duration such as 500ms, 30s, 5m, 2h or 1d, from 100ms to 1d"),
        ("mail:priority=-9999999", "queue mail: priority"),
        ("mail:bytes_max=1kB", "'1kB' is not a size"),
    ],
)
def test_bad_queue_flag_is_refused_by_name(flag: str, says: str) -> None:
    (line,) = mistakes(queues=[flag])
    assert line.startswith("--queue: ")
    assert says in line


def test_queue_given_twice_by_flags_is_refused() -> None:
    assert mistakes(queues=["mail:jobs_max=1", "mail:dead_max=1"]) == ["--queue: queue mail: given twice"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[brokers]",
            "/f.toml:1: brokers: unknown; the tables are [broker], [queues], [access], [pool], [log]",
        ),
        ("broker = 1", "/f.toml:1: broker: must be a table: [broker]"),
        ("[broker]\nkil_grace = 1", "/f.toml:2: broker.kil_grace: unknown; did you mean kill_grace?"),
        ("[broker]\nworkers = 1", "/f.toml:2: broker.workers: unknown; workers belongs in [pool]"),
        ("[broker]\nlease = '1s'", "/f.toml:2: broker.lease: unknown; lease belongs in [queues.NAME]"),
        ("[pool]\nqqq = 1", "/f.toml:2: pool.qqq: unknown"),
        ("[pool]\nworkers = 0", "/f.toml:2: pool.workers: 0 is not a number from 1 to 1024"),
        ("[pool]\nworkers = '3'", "/f.toml:2: pool.workers: '3' is not a number from 1 to 1024"),
        ("[queues]\nmail = 1", "/f.toml:2: queues.mail: must be a table such as [queues.mail]"),
        ("[queues.mail]\njobs = 1", "/f.toml:2: queues.mail.jobs: unknown; did you mean jobs_max?"),
        (
            "[queues.mail]\nworkers = 1",
            "/f.toml:2: queues.mail.workers: unknown; workers belongs in [pool]",
        ),
        (
            '[broker]\nsynchronous = "OFF"',
            "/f.toml:2: broker.synchronous: 'OFF' is not one of FULL, NORMAL",
        ),
        (
            '[queues."a b"]',
            "/f.toml:1: queues.a b: the name of a queue is made of A-Z a-z 0-9 . _ : - alone",
        ),
    ],
)
def test_mistake_in_the_file_names_line_key_and_what_is_allowed(text: str, line: str) -> None:
    assert mistakes(text=text) == [line]


def test_mistake_in_a_variable_and_a_flag_names_it() -> None:
    lines = mistakes(environ={"STOKER_POOL_WORKERS": "many"}, flags={"pool.workers": "none"})
    assert lines == [
        "STOKER_POOL_WORKERS: 'many' is not a number from 1 to 1024",
        "--workers: 'none' is not a number from 1 to 1024",
    ]


def test_all_mistakes_are_refused_at_once() -> None:
    effective = gathered(
        "top = 1\n[pool]\nworkers = 0\ndrain = 5\n",
        {"STOKER_BROKER_KILL_GRACE": "x"},
        {"broker.low_water": "1MB"},
        ["mail"],
    )
    with pytest.raises(SettingError) as caught:
        effective.refuse_mistakes()
    assert len(caught.value.lines) == 6


def test_nothing_is_refused_when_nothing_is_wrong() -> None:
    gathered(FILE, ENVIRON, FLAGS, ["mail:jobs_max=1"]).refuse_mistakes()


def test_long_value_is_cut_in_the_message() -> None:
    (line,) = mistakes(flags={"pool.workers": "x" * 5000})
    assert len(line) < 300


def test_unknown_variable_is_a_warning_with_the_nearest_name() -> None:
    effective = gathered(environ={"STOKER_POOL_WORKER": "3", "STOKER_PORT": "tcp://10.0.0.1", "OTHER": "x"})
    assert effective.mistakes == []
    assert effective.warnings == [
        "STOKER_POOL_WORKER: no setting has this variable, so it is ignored; did you mean STOKER_POOL_WORKERS?",
        "STOKER_PORT: no setting has this variable, so it is ignored",
    ]


def test_variables_that_are_no_settings_of_a_table_are_known_too() -> None:
    names = ("STOKER_SOCKET", "STOKER_DATA", "STOKER_CONFIG", "STOKER_QUEUES", "STOKER_WORKER")
    effective = gathered(environ=dict.fromkeys(names, "") | {"STOKER_WORKER": "nonce", "STOKER_CONFIG": "/f"})
    assert effective.warnings == []


def test_client_takes_one_path_and_leaves_other_mistakes_to_the_daemons() -> None:
    file = a_file('nonsense = 1\n[broker]\nsocket = "/s"\nwhat = 1\n')
    assert path_of_broker(file, "socket") == "/s"
    assert path_of_broker(file, "data") is None
    assert path_of_broker(None, "socket") is None


def test_wrong_path_for_a_client_is_refused() -> None:
    with pytest.raises(SettingError, match=r"/f.toml:2: broker.socket: 's' is not a path"):
        path_of_broker(a_file('[broker]\nsocket = "s"\n'), "socket")
