"""A visit: everything that is looked at, in the order in which one thing explains the next."""

import os
from collections.abc import Iterator, Sequence

from ..broker.files import BALLAST, JOURNAL
from ..config.settings import BrokerSettings
from ..config.sources import DEFAULT, Effective
from .descriptors import check_descriptors, descriptors_max
from .directory import check_last_error, check_state, nearest, owner_of
from .disk import check_disk, disk_of
from .finding import Finding, Level
from .guest import check_guest, host_of
from .journal import check_journal, holder_of, leave_journal
from .kernel import check_kernel, features
from .listening import ask, check_broker, check_socket, listening
from .openfiles import broker_of, check_open_files
from .settings import check_settings
from .versions import check_versions, installed


def visit(settings: BrokerSettings, effective: Effective, unreadable: Sequence[str]) -> Iterator[Finding]:
    """Look at this host, at the paths that the settings name, and at the broker there, if it runs."""
    yield from check_versions(installed())
    yield from check_kernel(features())
    yield from check_descriptors(descriptors_max())
    yield from check_settings(effective, unreadable)
    host = host_of(settings.socket, _data_meant(settings, effective), os.geteuid())
    if host is not None:
        yield from check_guest(settings.socket, host, listening(settings.socket))
        return
    if settings.data:
        yield from _check_data(settings.data, settings.low_water_bytes)
    if settings.socket:
        yield from _check_socket(settings)
    if settings.data:
        found = list(_check_journal(settings.data))
        yield from found
        is_sound = any(each.level is Level.OK for each in found)
        yield from check_last_error(settings.data, is_sound=is_sound)


def _data_meant(settings: BrokerSettings, effective: Effective) -> str:
    """Where only a socket was named, a directory of this user's own says nothing about whose broker that is."""
    socket, data = (effective.values[name].origin for name in ("broker.socket", "broker.data"))
    return "" if data == DEFAULT != socket else settings.data


def _check_data(path: str, low_water_bytes: int) -> Iterator[Finding]:
    yield from check_state(path, owner_of(path, os.geteuid()))
    has_ballast = os.path.exists(os.path.join(path, BALLAST))
    yield from check_disk(disk_of(nearest(path), has_ballast=has_ballast), low_water_bytes)


def _check_socket(settings: BrokerSettings) -> Iterator[Finding]:
    owner = owner_of(settings.data or settings.socket, os.geteuid())
    found = listening(settings.socket)
    yield from check_socket(settings.socket, owner, found)
    if found.is_there:
        yield from check_broker(ask(settings.socket), settings.data)


def _check_journal(data: str) -> Iterator[Finding]:
    path = os.path.join(data, JOURNAL)
    broker = broker_of(data)
    lost = list(check_open_files(data, broker)) if broker else []
    yield from lost
    holder = holder_of(path)
    if holder is not None:
        yield leave_journal(path, holder)
    elif not lost:
        yield from check_journal(path, owner_of(data, os.geteuid()))


def visit_copy(path: str) -> Iterator[Finding]:
    """Look at a copy of a journal, and at nothing else: it may be anybody's, and of any host."""
    pid = holder_of(path)
    if pid is not None:
        yield leave_journal(path, pid)
    else:
        yield from check_journal(path, owner_of(path, os.geteuid()), is_named=True)
