"""Settings of each program: values as it uses them, made from what the sources said.

Only values are checked here, each refused by its name; whether a path exists or is safe is found
out by whoever opens it. Defaults are those of the table.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ..proto.address import AddressError, socket_path, state_directory
from ..proto.queuerules import QueueRules
from .people import NOBODY, People, gid_of, people_of
from .sources import At, Effective, Said
from .table import ACCESS, BROKER, LOG, POOL, QUEUE_KEYS, QUEUE_LIMITS, keys_of


def _default(table: str, field: str) -> Any:
    return next(setting.default for setting in keys_of(table).values() if setting.field == field)


@attrs.frozen
class AccessSettings:
    """Who may do what, beside root and the broker's own user, who may do everything."""

    submit: People = NOBODY
    work: People = NOBODY
    admin: People = NOBODY


@attrs.frozen
class BrokerSettings:
    """Everything `stoker broker` can be told. Paths are final: see `proto.address`."""

    socket: str
    data: str
    synchronous: str = _default(BROKER, "synchronous")
    queue_default: QueueRules = attrs.Factory(QueueRules)
    queues: Mapping[str, QueueRules] = attrs.Factory(dict[str, QueueRules])
    jobs_max: int = _default(BROKER, "jobs_max")
    done_kept_ms: int = _default(BROKER, "done_kept_ms")
    done_kept_max: int = _default(BROKER, "done_kept_max")
    dead_kept_ms: int = _default(BROKER, "dead_kept_ms")
    dead_kept_max: int = _default(BROKER, "dead_kept_max")
    reconnect_grace_ms: int = _default(BROKER, "reconnect_grace_ms")
    supervisor_grace_ms: int = _default(BROKER, "supervisor_grace_ms")
    kill_grace_ms: int = _default(BROKER, "kill_grace_ms")
    heartbeat_ms_max: int = _default(BROKER, "heartbeat_ms_max")
    low_water_bytes: int = _default(BROKER, "low_water_bytes")
    socket_mode: int = _default(BROKER, "socket_mode")
    socket_gid: int | None = None
    access: AccessSettings = AccessSettings()
    log_format: str = _default(LOG, "log_format")


@attrs.frozen
class PoolSettings:
    """Everything `stoker pool` can be told, beside its app. Names of user and group are not looked up yet."""

    socket: str
    data: str | None = None
    """Where its broker keeps its files; None if nobody can tell."""
    low_water_bytes: int = _default(BROKER, "low_water_bytes")
    workers: int = _default(POOL, "workers")
    async_workers: int = _default(POOL, "async_workers")
    async_slots: int = _default(POOL, "async_slots")
    name: str | None = None
    queues: tuple[tuple[str, int], ...] = ()
    prefetch: int = _default(POOL, "prefetch")
    commands: tuple[str, ...] | None = None
    """Programs that jobs may run, all if it is empty; None: jobs are no programs."""
    drain_ms: int = _default(POOL, "drain_ms")
    user: str | None = None
    group: str | None = None
    memory_limit_bytes: int | None = None
    """What one worker may take; None is no limit."""
    recycle_jobs: int | None = None
    recycle_memory_bytes: int | None = None
    recycle_age_ms: int | None = None
    """From when on a worker is replaced; None for never."""
    job_output: str = _default(POOL, "job_output")
    capture_bytes: int = _default(POOL, "capture_bytes")
    log_format: str = _default(LOG, "log_format")

    @property
    def memory_bytes_max(self) -> int | None:
        """The most memory that the pool's workers can take together; None if there is no limit."""
        return None if self.memory_limit_bytes is None else self.workers * self.memory_limit_bytes


def broker_settings(effective: Effective, environ: Mapping[str, str], uid: int) -> BrokerSettings:
    """For the broker. What is wrong is put down in `effective`, to be refused before they are used."""
    values = _values(effective, BROKER) | _values(effective, LOG)
    values["socket"] = _path(effective, "broker.socket", socket_path, environ, uid)
    values["data"] = _path(effective, "broker.data", state_directory, environ, uid)
    group = effective.values["broker.socket_group"]
    values["socket_gid"] = None if group.value is None else _gid(effective, group)
    queues = {name: queue_rules(said) for name, said in effective.queues.items()}
    return BrokerSettings(queues=queues, access=_access(effective), **values)


def pool_settings(effective: Effective, environ: Mapping[str, str], uid: int) -> PoolSettings:
    """The same for a pool. `uid` is whose broker it is looking for."""
    group, user = effective.values["pool.group"], effective.value("pool.user")
    if group.value is not None and user is None:
        effective.mistake(At(group.origin, "pool.group"), "needs a user as well (pool.user)")
    values = _values(effective, POOL) | _values(effective, LOG)
    return PoolSettings(
        socket=_path(effective, "broker.socket", socket_path, environ, uid),
        data=_data(effective, environ, uid),
        low_water_bytes=effective.value("broker.low_water"),
        **values,
    )


def queue_rules(said: Mapping[str, Said]) -> QueueRules:
    """The rules of one queue from what was said of it, by key."""
    values = {QUEUE_KEYS[key].field: value for key, (value, _) in said.items()}
    policy = {field: value for field, value in values.items() if field not in QUEUE_LIMITS}
    return QueueRules(policy=policy, **{field: values[field] for field in values.keys() & QUEUE_LIMITS})


def _values(effective: Effective, table: str) -> dict[str, Any]:
    return {setting.field: effective.value(setting.name) for setting in keys_of(table).values()}


def _path(
    effective: Effective,
    name: str,
    decide: Callable[[str | None, Mapping[str, str], int], str],
    environ: Mapping[str, str],
    uid: int,
) -> str:
    """Where something is, by what was said of it and who asks."""
    path, origin = effective.values[name]
    try:
        return decide(path, environ, uid)
    except AddressError as error:
        line = f"{At(origin, name)}: {error}"
        # Two programs look for one socket; it is one mistake.
        if line not in effective.mistakes:
            effective.mistakes.append(line)
        return ""


def _data(effective: Effective, environ: Mapping[str, str], uid: int) -> str | None:
    """The state directory, for a pool, which can do without."""
    try:
        return state_directory(effective.value("broker.data"), environ, uid)
    except AddressError:
        return None


def _gid(effective: Effective, group: Said) -> int | None:
    try:
        return gid_of(group.value)
    except ValueError as error:
        effective.mistake(At(group.origin, "broker.socket_group"), str(error))
        return None


def _access(effective: Effective) -> AccessSettings:
    found: dict[str, People] = {}
    for setting in keys_of(ACCESS).values():
        texts, origin = effective.values[setting.name]
        found[setting.field], wrong = people_of(texts)
        for says in wrong:
            effective.mistake(At(origin, setting.name), says)
    return AccessSettings(**found)
