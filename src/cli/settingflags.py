"""Flags of the daemons' settings, made from the table of settings, and what comes of them.

`stoker broker`, `stoker pool` and `stoker config` obey them; `stoker up` passes them on as they were
given. Values stay text here: they are read with the file and the environment, so that all that is wrong
is said at once.
"""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import click

from ..config.file import read
from ..config.place import place
from ..config.sources import Effective, gather
from ..config.table import QUEUES, SETTINGS, Setting
from .escape import escape
from .output import say

F = TypeVar("F", bound=Callable[..., Any])

PLACES = ("broker.socket", "broker.data", "broker.low_water")
"""Of the broker's settings those that a pool reads as well."""

_CONFIG = click.option(
    "--config",
    metavar="FILE",
    help="The settings file. Default: STOKER_CONFIG, or where this user's is; /dev/null for none.",
)
_QUEUE = click.option(
    "--queue",
    "queue_rules",
    multiple=True,
    metavar="NAME:KEY=VALUE,...",
    help="Limits and policy of a queue, as mail:jobs_max=100,overflow=wait. May be repeated.",
)


def setting_flags(*tables: str) -> Callable[[F], F]:
    """Adds `--config`, those of PLACES, and the flags of these tables of the settings."""

    def decorate(command: F) -> F:
        for setting in reversed(SETTINGS):
            if setting.table in tables or setting.name in PLACES:
                command = _option(setting)(command)
        if QUEUES in tables:
            command = _QUEUE(command)
        return _CONFIG(command)

    return decorate


def _option(setting: Setting) -> Callable[[F], F]:
    default = setting.default_text
    if setting.name in ("broker.socket", "broker.data"):
        default = f"{setting.environ}, or {default}"
    alone = setting.kind.alone
    return click.option(
        setting.flag,
        _parameter(setting),
        metavar=setting.kind.word,
        is_flag=False,
        flag_value=alone,
        help=f"{setting.says} Default: {default}." + (f" Without a value: {alone}." if alone else ""),
    )


def _parameter(setting: Setting) -> str:
    """What click calls the flag of a setting."""
    return setting.flag.removeprefix("--").replace("-", "_")


def effective_of(flags: Mapping[str, Any], *, warn: bool = True) -> Effective:
    """What file, environment and these flags say together. SettingError if the file cannot be read.

    Mistakes within it are not refused yet: see `Effective.refuse_mistakes`.
    """
    file = read(place(flags["config"], os.environ, os.getuid()))
    texts = {setting.name: flags.get(_parameter(setting)) for setting in SETTINGS}
    effective = gather(texts, flags.get("queue_rules") or (), os.environ, file)
    for warning in effective.warnings if warn else ():
        say(f"stoker: warning: {escape(warning)}")
    return effective


def as_arguments(flags: Mapping[str, Any], *tables: str, names: Collection[str] = ()) -> list[str]:
    """The flags of these tables, and of these settings, as they were given, for another command line."""
    wanted = [setting for setting in SETTINGS if setting.table in tables or setting.name in names]
    given = [(setting, flags.get(_parameter(setting))) for setting in wanted]
    arguments = [f"{setting.flag}={text}" for setting, text in given if text is not None]
    if QUEUES in tables:
        arguments += [f"--queue={queue}" for queue in flags.get("queue_rules") or ()]
    return arguments
