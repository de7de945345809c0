"""A visit: everything that is looked at, in the order in which one thing explains the next."""

import os
from collections.abc import Iterator, Sequence

from ..broker.files import BALLAST, JOURNAL
from ..config.settings import BrokerSettings
from ..config.sources import Effective
from .directory import check_last_error, check_state, nearest, owner_of
from .disk import check_disk, disk_of
from .finding import Finding
from .journal import check_journal, holder_of, leave_journal
from .kernel import check_kernel, features
from .listening import ask, check_broker, check_socket, listening
from .settings import check_settings
from .versions import check_versions, installed


def visit(
    settings: BrokerSettings, effective: Effective, unreadable: Sequence[str], journal: str | None
) -> Iterator[Finding]:
    """Look at this host, at the paths that the settings name, and at the broker there, if it runs.

    `journal` is a copy to check in place of the journal in the state directory.
    """
    yield from check_versions(installed())
    yield from check_kernel(features())
    yield from check_settings(effective, unreadable)
    if settings.data:
        yield from _check_data(settings.data, settings.low_water_bytes)
    if settings.socket:
        yield from _check_socket(settings)
    yield from _check_journal(settings.data, journal)


def _check_data(path: str, low_water_bytes: int) -> Iterator[Finding]:
    yield from check_state(path, owner_of(path, os.geteuid()))
    has_ballast = os.path.exists(os.path.join(path, BALLAST))
    yield from check_disk(disk_of(nearest(path), has_ballast=has_ballast), low_water_bytes)
    yield from check_last_error(path)


def _check_socket(settings: BrokerSettings) -> Iterator[Finding]:
    owner = owner_of(settings.data or settings.socket, os.geteuid())
    found = listening(settings.socket)
    yield from check_socket(settings.socket, owner, found)
    if found.is_there:
        yield from check_broker(ask(settings.socket), settings.data)


def _check_journal(data: str, journal: str | None) -> Iterator[Finding]:
    if not journal and not data:
        return
    path = journal or os.path.join(data, JOURNAL)
    pid = holder_of(path)
    if pid is not None:
        yield leave_journal(path, pid)
    else:
        # A copy may be anybody's; the journal itself has to be that of the directory's owner.
        owner = owner_of(journal or data, os.geteuid())
        yield from check_journal(path, owner, is_named=bool(journal))
