"""`stoker doctor`: what is wrong with this host, its directories and its journal, and what to do."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from ..config.exits import Exit
from ..config.mistakes import SettingError
from ..config.settings import BrokerSettings, broker_settings, pool_settings
from ..config.sources import Effective
from ..doctor.finding import Finding, Level, worst
from .escape import escape
from .options import json_option, socket_option
from .output import json_text, put, put_lines
from .settingflags import effective_of

_CODES = {
    Level.OK: Exit.OK,
    Level.NOTE: Exit.OK,
    Level.WARNING: Exit.DOUBTFUL,
    Level.ERROR: Exit.UNFIT,
}


@click.command()
@click.option("--config", metavar="FILE", help="The settings file, as for `stoker broker`.")
@click.option("--data", metavar="DIRECTORY", help="The state directory, as for `stoker broker`.")
@click.option("--journal", metavar="FILE", help="Check this copy, such as a snapshot, and nothing else.")
@socket_option
@json_option
def doctor(
    config: str | None, data: str | None, journal: str | None, socket: str | None, as_json: bool
) -> int:
    """Look at this host, the state directory, the socket and the journal, and say what to do.

    Nothing is changed, and a broker that runs is only asked. Exit codes: 0 nothing to do, 9 something
    should be looked at, 10 a broker would not start or takes no jobs, or something is damaged.
    """
    findings = _found(journal, {"config": config, "data": data, "socket": socket})
    level = worst(findings)
    if as_json:
        put(json_text(_report(findings, level)))
    else:
        put_lines(map(line, findings))
    return _CODES[level]


def _found(journal: str | None, flags: Mapping[str, Any]) -> Sequence[Finding]:
    # What the broker needs is loaded here and nowhere else in the commands.
    from ..doctor.visit import visit, visit_copy

    if journal is None:
        return list(visit(*_settings(flags)))
    if not journal:
        raise click.BadParameter("names no file", param_hint="--journal")
    return list(visit_copy(journal))


def _settings(flags: Mapping[str, Any]) -> tuple[BrokerSettings, Effective, tuple[str, ...]]:
    """What a broker would have, where the file can be read, and what kept it from being."""
    unreadable: tuple[str, ...] = ()
    try:
        effective = effective_of(flags, warn=False)
    except SettingError as error:
        unreadable = error.lines
        effective = effective_of({**flags, "config": os.devnull}, warn=False)
    at = os.environ, os.getuid()
    settings = broker_settings(effective, *at)
    # Its mistakes count as well: names of users and groups are looked up here.
    pool_settings(effective, *at)
    return settings, effective, unreadable


def line(finding: Finding) -> str:
    """A finding for a person."""
    text = f"{finding.level.name.lower():<8} {finding.check:<11} {escape(finding.what)}"
    return f"{text}; {escape(finding.advice)}" if finding.advice else text


def _report(findings: Iterable[Finding], level: Level) -> dict[str, Any]:
    return {
        "worst": level.name.lower(),
        "findings": [
            {"level": each.level.name.lower(), "check": each.check, "what": each.what, "do": each.advice}
            for each in findings
        ],
    }
