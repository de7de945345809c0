"""Flags of the broker, once for `stoker broker`, which obeys them, and `stoker up`, which passes them on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from ..config.durations import format_duration, format_size, parse_duration, parse_size
from ..proto import limits

F = TypeVar("F", bound=Callable[..., Any])


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


_DURATION, _NUMBER = "DURATION", "NUMBER"
_FLAGS: Mapping[str, tuple[Callable[[str], Any], str, str, str]] = {
    "synchronous": (
        str,
        "FULL|NORMAL",
        "FULL",
        "FULL survives power loss, NORMAL only a crash of stoker.",
    ),
    "done_kept": (
        parse_duration,
        _DURATION,
        format_duration(limits.DONE_KEPT_MS_DEFAULT),
        "How long done and cancelled jobs are kept.",
    ),
    "done_kept_max": (
        _count,
        _NUMBER,
        str(limits.DONE_KEPT_MAX_DEFAULT),
        "How many done and cancelled jobs are kept.",
    ),
    "dead_kept": (
        parse_duration,
        _DURATION,
        format_duration(limits.DEAD_KEPT_MS_DEFAULT),
        "How long dead jobs are kept.",
    ),
    "dead_kept_max": (_count, _NUMBER, str(limits.DEAD_KEPT_MAX_DEFAULT), "How many dead jobs are kept."),
    "reconnect_grace": (
        parse_duration,
        _DURATION,
        format_duration(limits.RECONNECT_GRACE_MS),
        "How long a worker may be disconnected and keep its job.",
    ),
    "supervisor_grace": (
        parse_duration,
        _DURATION,
        format_duration(limits.SUPERVISOR_GRACE_MS),
        "How long a supervisor may be silent about a dead worker.",
    ),
    "kill_grace": (
        parse_duration,
        _DURATION,
        format_duration(limits.KILL_GRACE_MS),
        "From the signal that a handler can answer to SIGKILL.",
    ),
    "heartbeat_max": (
        parse_duration,
        _DURATION,
        format_duration(limits.HEARTBEAT_MS_MAX),
        "The longest interval between heartbeats.",
    ),
    "low_water": (
        parse_size,
        "SIZE",
        format_size(limits.LOW_WATER_BYTES),
        "Free disk space below which enqueues are refused.",
    ),
}
"""Flag to how it is read, what `--help` calls its value, its default, and its text."""

_FIELDS = {
    "done_kept": "done_kept_ms",
    "dead_kept": "dead_kept_ms",
    "reconnect_grace": "reconnect_grace_ms",
    "supervisor_grace": "supervisor_grace_ms",
    "kill_grace": "kill_grace_ms",
    "heartbeat_max": "heartbeat_ms_max",
    "low_water": "low_water_bytes",
}
"""Names of the settings, where they differ from the flag's."""


def broker_flags(command: F) -> F:
    """Adds `--data`, `--queue` and the rest."""
    for name, (_, metavar, default, text) in reversed(list(_FLAGS.items())):
        command = click.option(
            f"--{name.replace('_', '-')}", name, metavar=metavar, help=f"{text} Default: {default}."
        )(command)
    command = click.option(
        "--queue",
        "queues",
        multiple=True,
        metavar="NAME:KEY=VALUE,...",
        help="Limits and policy of a queue, as mail:jobs_max=100,overflow=wait. May be repeated.",
    )(command)
    return click.option(
        "--data",
        metavar="DIRECTORY",
        help="The state directory, where the journal is. Default: STOKER_DATA, or where this user's is.",
    )(command)


def as_arguments(flags: Mapping[str, Any]) -> list[str]:
    """The flags as they were given, for another command line."""
    arguments = [
        f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if name in _FLAGS and value
    ]
    queues: Sequence[str] = flags.get("queues") or ()
    return [*arguments, *(f"--queue={queue}" for queue in queues)]


def settings(flags: Mapping[str, Any], *, socket: str, data: str) -> Any:
    """The broker's settings. SettingError names the flag that is wrong."""
    from ..config.settings import BrokerSettings, SettingError, parse_queues

    values: dict[str, Any] = {}
    for name, (convert, *_) in _FLAGS.items():
        if flags.get(name) is not None:
            try:
                values[_FIELDS.get(name, name)] = convert(flags[name])
            except ValueError as error:
                raise SettingError(f"--{name.replace('_', '-')}: {error}") from None
    queues = parse_queues(flags.get("queues") or ())
    return BrokerSettings(socket=socket, data=data, queues=queues, **values)
