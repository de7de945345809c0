"""What was said, by whom: defaults, then the file, the environment and flags; the later wins, key by key.

Everything that is wrong is gathered first and refused at once (`Effective.refuse_mistakes`), so that
nobody has to start a daemon five times to find five mistakes. Whatever is wrong counts as not said
until then. The whole file is checked by every program that reads it, but names of users and groups are
looked up only by the one that needs them (`settings`): they may not exist where another one runs.

A variable that begins with STOKER_ and is no setting is only a warning: containers get variables of
other programs under every prefix.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from .file import File
from .kinds import is_queue_name
from .mistakes import SettingError, nearest
from .table import (
    BROKER,
    BY_NAME,
    CONFIG_ENVIRON,
    QUEUE_KEYS,
    QUEUES,
    QUEUES_ENVIRON,
    SETTINGS,
    TABLES,
    Setting,
    keys_of,
)

DEFAULT = "default"

_PREFIX = "STOKER_"

_OTHER_ENVIRON = frozenset({CONFIG_ENVIRON, QUEUES_ENVIRON, "STOKER_WORKER"})
"""Known as well; the last marks the processes of a worker."""


class Said(NamedTuple):
    """The value of a setting, and where it was said."""

    value: Any
    origin: str
    """`default`, a file and its line, the name of an environment variable, or a flag."""


class Effective:
    """The settings as they are, with their origins, and everything that is wrong with them."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        """The path of the file that was read."""
        self.values: dict[str, Said] = {setting.name: Said(setting.default, DEFAULT) for setting in SETTINGS}
        self.queues: dict[str, dict[str, Said]] = {}
        """What was said of each queue that is named at all; the rest has its defaults."""
        self.mistakes: list[str] = []
        self.warnings: list[str] = []

    def value(self, name: str) -> Any:
        """The value of one setting, by its name such as `broker.kill_grace`."""
        return self.values[name].value

    def mistake(self, at: "At", says: str) -> None:
        """Put one down: where it is and what is wrong."""
        self.mistakes.append(f"{at}: {says}")

    def refuse_mistakes(self) -> None:
        """SettingError with all that is wrong, if anything is."""
        if self.mistakes:
            raise SettingError(*self.mistakes)


class At(NamedTuple):
    """Where something was said: the origin, and which of the things said there, if it says several."""

    origin: str
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.origin}: {self.subject}" if self.subject else self.origin


def gather(
    flags: Mapping[str, str | None],
    queue_flags: Sequence[str],
    environ: Mapping[str, str],
    file: File | None,
) -> Effective:
    """All sources in their order. `flags` holds texts by the name of the setting."""
    effective = Effective(file.path if file is not None else None)
    if file is not None:
        _from_file(effective, file)
    _from_environment(effective, environ)
    for name, text in flags.items():
        if text is not None:
            _put_text(effective, effective.values, name, BY_NAME[name], text, At(BY_NAME[name].flag))
    _from_queue_texts(effective, queue_flags, "--queue")
    return effective


def _put(
    effective: Effective, said: dict[str, Said], name: str, setting: Setting, value: object, at: At
) -> None:
    """A setting gets the value that a file has for it, unless that is not allowed."""
    try:
        said[name] = Said(setting.kind.take(value), at.origin)
    except ValueError:
        effective.mistake(at, f"{_shown(value)} is not {setting.kind.allowed}")


def _put_text(
    effective: Effective, said: dict[str, Said], name: str, setting: Setting, text: str, at: At
) -> None:
    """The same where everything is text, whatever it means."""
    try:
        said[name] = Said(setting.kind.parse(text), at.origin)
    except ValueError:
        effective.mistake(at, f"{_shown(text)} is not {setting.kind.allowed}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


# --- the file ----------------------------------------------------------------------------------------------


def _from_file(effective: Effective, file: File) -> None:
    for table, values in file.values.items():
        at = At(file.where(table), table)
        if table not in TABLES:
            known = f"the tables are {', '.join(f'[{name}]' for name in TABLES)}"
            effective.mistake(at, f"unknown; {known}{_home_of(table)}")
        elif not isinstance(values, dict):
            effective.mistake(at, f"must be a table: [{table}]")
        elif table == QUEUES:
            _queues_from_file(effective, file, cast("dict[str, object]", values))
        else:
            _table_from_file(effective, file, table, cast("dict[str, object]", values))


def _table_from_file(effective: Effective, file: File, table: str, values: Mapping[str, object]) -> None:
    known = keys_of(table)
    for key, value in values.items():
        at = At(file.where(table, key), f"{table}.{key}")
        if key in known:
            _put(effective, effective.values, known[key].name, known[key], value, at)
        else:
            effective.mistake(at, f"unknown{_home_of(key) or nearest(key, known)}")


def _home_of(key: str) -> str:
    """In which table a key that stands in a wrong one would be right."""
    homes = [f"[{setting.table}]" for setting in SETTINGS if setting.key == key]
    if key in QUEUE_KEYS:
        homes.append("[queues.NAME]")
    return f"; {key} belongs in {' or '.join(homes)}" if homes else ""


def _queues_from_file(effective: Effective, file: File, values: Mapping[str, object]) -> None:
    for name, queue in values.items():
        at = At(file.where(QUEUES, name), f"{QUEUES}.{name}")
        if not isinstance(queue, dict):
            effective.mistake(at, f"must be a table such as [queues.mail]{_home_of(name)}")
        elif not is_queue_name(name):
            effective.mistake(at, "the name of a queue is made of A-Z a-z 0-9 . _ : - alone")
        else:
            _queue_from_file(effective, file, name, cast("dict[str, object]", queue))


def _queue_from_file(effective: Effective, file: File, name: str, values: Mapping[str, object]) -> None:
    said = effective.queues.setdefault(name, {})
    for key, value in values.items():
        at = At(file.where(QUEUES, name, key), f"{QUEUES}.{name}.{key}")
        if key in QUEUE_KEYS:
            _put(effective, said, key, QUEUE_KEYS[key], value, at)
        else:
            effective.mistake(at, f"unknown{_home_of(key) or nearest(key, QUEUE_KEYS)}")


# --- the environment ---------------------------------------------------------------------------------------


def _from_environment(effective: Effective, environ: Mapping[str, str]) -> None:
    known = {setting.environ: setting for setting in SETTINGS}
    for name, text in sorted(environ.items()):
        if name in known:
            # Set to nothing is how shells and service managers unset.
            if text:
                _put_text(effective, effective.values, known[name].name, known[name], text, At(name))
        elif name.startswith(_PREFIX) and name not in _OTHER_ENVIRON:
            bare = [other.removeprefix(_PREFIX) for other in (*known, *_OTHER_ENVIRON)]
            hint = nearest(name.removeprefix(_PREFIX), bare).replace("mean ", f"mean {_PREFIX}")
            effective.warnings.append(f"{name}: no setting has this variable, so it is ignored{hint}")
    _from_queue_texts(effective, environ.get(QUEUES_ENVIRON, "").split(), QUEUES_ENVIRON)


# --- queues as text ----------------------------------------------------------------------------------------


def _from_queue_texts(effective: Effective, texts: Iterable[str], origin: str) -> None:
    """Queues from texts like `mail:jobs_max=100,bytes_max=1MiB,overflow=wait`, each at most once."""
    seen: set[str] = set()
    for text in texts:
        name = _queue_name(text)
        if name is None:
            effective.mistake(At(origin), f"{_shown(text)} is not like mail:jobs_max=100,overflow=wait")
        elif name in seen:
            effective.mistake(At(origin, f"queue {name}"), "given twice")
        else:
            seen.add(name)
            _from_queue_text(effective, name, text[len(name) + 1 :], origin)


def _queue_name(text: str) -> str | None:
    """The last colon before the first `=` ends the name, because names may hold colons themselves."""
    name, colon, _ = text.partition("=")[0].rpartition(":")
    return name if colon and is_queue_name(name) else None


def _from_queue_text(effective: Effective, name: str, text: str, origin: str) -> None:
    said = effective.queues.setdefault(name, {})
    seen: set[str] = set()
    for pair in text.split(","):
        key, _, value = pair.partition("=")
        at = At(origin, f"queue {name}: {key}")
        if key not in QUEUE_KEYS:
            hint = nearest(key, QUEUE_KEYS) or f"; known are {', '.join(QUEUE_KEYS)}"
            effective.mistake(at, f"unknown{hint}")
        elif key in seen:
            effective.mistake(at, "given twice")
        else:
            seen.add(key)
            _put_text(effective, said, key, QUEUE_KEYS[key], value, at)


# --- for clients -------------------------------------------------------------------------------------------


def path_of_broker(file: File | None, key: str) -> str | None:
    """One path of `[broker]`; SettingError if it is not allowed. The rest is for the daemons to check."""
    table: object = file.values.get(BROKER) if file is not None else None
    if file is None or not isinstance(table, dict) or key not in table:
        return None
    effective = Effective(file.path)
    setting = keys_of(BROKER)[key]
    value = cast("dict[str, object]", table)[key]
    _put(effective, effective.values, setting.name, setting, value, At(file.where(BROKER, key), setting.name))
    effective.refuse_mistakes()
    path: str = effective.value(setting.name)
    return path
