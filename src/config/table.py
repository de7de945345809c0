"""The one table of settings. File, environment, flags, `stoker config` and the documentation follow it.

A row is a key of a table in `stoker.toml`. Its environment variable and its flag follow from the two
names (`Setting.environ`, `Setting.flag`), with the exceptions below. `field` is the name of the value
where programs use it (`settings.py`): it ends in the unit.

The policy of a queue has no defaults here: what a queue leaves open is decided job by job.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..proto import limits
from ..proto.model import Overflow
from ..proto.queuerules import QueueRules
from .kinds import Choice, Duration, Kind, Mode, Number, Path, People, Person, Programs, Size, Turns, Word

BROKER, QUEUES, ACCESS, POOL, LOG = TABLES = ("broker", "queues", "access", "pool", "log")
"""Tables of the file, in the order in which they are shown. `queues` holds one table for each queue, and
`log` is for broker and pool alike."""

CONFIG_ENVIRON = "STOKER_CONFIG"
QUEUES_ENVIRON = "STOKER_QUEUES"

_SHORT_ENVIRON = {"broker.socket": "STOKER_SOCKET", "broker.data": "STOKER_DATA"}
"""These two concern clients as well, so their names are not the broker's."""


class Setting(NamedTuple):
    """One row."""

    table: str
    key: str
    kind: Kind
    default: Any
    """The value where nobody says anything; None where something else decides, see `default_says`."""
    says: str
    field: str
    default_says: str = ""
    """The default in words, if it is no fixed value."""

    @property
    def name(self) -> str:
        """As messages and `stoker config` call it."""
        return f"{self.table}.{self.key}"

    @property
    def environ(self) -> str:
        """Its environment variable."""
        return _SHORT_ENVIRON.get(self.name) or f"STOKER_{self.table}_{self.key}".upper()

    @property
    def flag(self) -> str:
        """Its flag. Those of `[access]` and `[log]` say so: the bare words would not explain themselves."""
        key = self.key if self.table not in (ACCESS, LOG) else f"{self.table}-{self.key}"
        return f"--{key.replace('_', '-')}"

    @property
    def default_text(self) -> str:
        """The default, for people."""
        return self.default_says or text_of(self.kind.show(self.default))


def text_of(shown: object) -> str:
    """One line for what `Kind.show` made of a value."""
    if isinstance(shown, list):
        items: list[object] = [*shown]
        return ",".join(map(str, items)) or "nobody"
    return str(shown)


_ANY_DURATION = Duration(0, limits.DURATION_MS_MAX)
_SOME_DURATION = Duration(1, limits.DURATION_MS_MAX)
_GRACE = Duration(limits.GRACE_MS_MIN, limits.DURATION_MS_MAX)
_COUNT = Number(0, limits.INTEGER_MAX)
_CHARGES = Number(1, limits.ATTEMPTS_MAX_LIMIT)
_HEARTBEAT = Duration(limits.LEASE_MS_MIN // limits.HEARTBEAT_SHARE_OF_LEASE, limits.LEASE_MS_MAX)


def _text(bytes_max: int) -> Kind:
    def fits(text: str) -> bool:
        return 0 < len(os.fsencode(text)) <= bytes_max and text.isprintable()

    return Kind("TEXT", f"printable text of 1 to {bytes_max} bytes", fits)


SETTINGS: tuple[Setting, ...] = (
    Setting(
        BROKER,
        "socket",
        Path("PATH"),
        None,
        "The broker's socket.",
        "socket",
        "where this user's broker listens",
    ),
    Setting(
        BROKER,
        "data",
        Path("DIRECTORY"),
        None,
        "The state directory, where the journal is.",
        "data",
        "where this user's is",
    ),
    Setting(
        BROKER,
        "synchronous",
        Word("FULL", "NORMAL"),
        # Anything weaker loses acknowledged jobs at a power cut, and OFF could corrupt the file.
        "FULL",
        "FULL survives power loss; NORMAL only a crash of stoker: a power cut may take what was"
        " acknowledged since the last checkpoint.",
        "synchronous",
    ),
    Setting(
        BROKER,
        "jobs_max",
        Number(1, limits.INTEGER_MAX),
        limits.LIVE_JOBS_MAX_DEFAULT,
        "Live jobs of all queues together, each about 1 KiB of the broker's memory; one more is refused with"
        " queue_full.",
        "jobs_max",
    ),
    Setting(
        BROKER,
        "done_kept",
        _ANY_DURATION,
        limits.DONE_KEPT_MS_DEFAULT,
        "How long done and cancelled jobs are kept.",
        "done_kept_ms",
    ),
    Setting(
        BROKER,
        "done_kept_max",
        _COUNT,
        limits.DONE_KEPT_MAX_DEFAULT,
        "How many done and cancelled jobs are kept.",
        "done_kept_max",
    ),
    Setting(
        BROKER,
        "dead_kept",
        _ANY_DURATION,
        limits.DEAD_KEPT_MS_DEFAULT,
        "How long dead jobs are kept.",
        "dead_kept_ms",
    ),
    Setting(
        BROKER,
        "dead_kept_max",
        _COUNT,
        limits.DEAD_KEPT_MAX_DEFAULT,
        "How many dead jobs are kept.",
        "dead_kept_max",
    ),
    Setting(
        BROKER,
        "reconnect_grace",
        _GRACE,
        limits.RECONNECT_GRACE_MS,
        "How long a worker may be disconnected and keep its job.",
        "reconnect_grace_ms",
    ),
    Setting(
        BROKER,
        "supervisor_grace",
        _GRACE,
        limits.SUPERVISOR_GRACE_MS,
        "How long a supervisor may be silent about a dead worker; then the broker acts itself.",
        "supervisor_grace_ms",
    ),
    Setting(
        BROKER,
        "kill_grace",
        Duration(limits.KILL_GRACE_MS_MIN, limits.DURATION_MS_MAX),
        limits.KILL_GRACE_MS,
        "From the signal that a handler can answer to SIGKILL.",
        "kill_grace_ms",
    ),
    Setting(
        BROKER,
        "heartbeat_max",
        _HEARTBEAT,
        limits.HEARTBEAT_MS_MAX,
        "The longest interval between heartbeats; a quarter of the shortest lease if that is less.",
        "heartbeat_ms_max",
    ),
    Setting(
        BROKER,
        "low_water",
        Size(limits.LOW_WATER_BYTES_MIN, limits.INTEGER_MAX),
        limits.LOW_WATER_BYTES,
        "Free disk space below which enqueues are refused with storage_full.",
        "low_water_bytes",
    ),
    Setting(
        BROKER,
        "socket_mode",
        Mode(),
        0o600,
        "Permissions of the socket: who may connect at all.",
        "socket_mode",
    ),
    Setting(
        BROKER,
        "socket_group",
        Person("group"),
        None,
        "The group of the socket.",
        "socket_gid",
        "the broker's own",
    ),
    Setting(
        ACCESS, "submit", People(), (), "Who may enqueue, wait, cancel, and look at jobs they name.", "submit"
    ),
    Setting(ACCESS, "work", People(), (), "Who may run pools and workers.", "work"),
    Setting(
        ACCESS,
        "admin",
        People(),
        (),
        "Who may do everything but work: all that submit may, and list, kick, drop, pause, snapshot.",
        "admin",
    ),
    Setting(
        POOL,
        "workers",
        Number(1, limits.LIST_ITEMS_MAX),
        os.cpu_count() or 1,
        "Processes that run jobs, one at a time each.",
        "workers",
        "the number of processors",
    ),
    Setting(
        POOL,
        "async_workers",
        Number(0, limits.LIST_ITEMS_MAX),
        limits.ASYNC_WORKERS_DEFAULT,
        "Processes for coroutine handlers, of each loop of which the app has any.",
        "async_workers",
    ),
    Setting(
        POOL,
        "slots",
        Number(1, limits.SLOTS_MAX),
        limits.ASYNC_SLOTS_DEFAULT,
        "Jobs that each of those runs at once.",
        "async_slots",
    ),
    Setting(
        POOL,
        "name",
        _text(limits.NAME_BYTES_MAX),
        None,
        "Name of the pool in `stoker status`.",
        "name",
        "APP",
    ),
    Setting(
        POOL,
        "queues",
        Turns(),
        (),
        "Queues that the pool takes jobs from, in this order or by weight.",
        "queues",
        "all, in turns",
    ),
    Setting(
        POOL,
        "commands",
        Programs(),
        None,
        "Programs that jobs of the kind `command` may be.",
        "commands",
        "none",
    ),
    Setting(
        POOL,
        "drain",
        _ANY_DURATION,
        limits.DRAIN_MS_DEFAULT,
        "How long running jobs may go on after TERM.",
        "drain_ms",
    ),
    Setting(
        POOL,
        "prefetch",
        Number(0, limits.PREFETCH_MAX),
        0,
        "Quick jobs of plain functions that a busy worker gets ahead of the one that it runs: more of them a second, "
        "and as many more run twice if worker and broker are killed together.",
        "prefetch",
    ),
    Setting(
        POOL,
        "memory_limit",
        Size(limits.MEMORY_LIMIT_BYTES_MIN, limits.INTEGER_MAX),
        None,
        "Memory one job of a plain function may take, if its kind says nothing.",
        "memory_limit_bytes",
        "no limit",
    ),
    Setting(
        POOL,
        "recycle_jobs",
        Number(1, limits.INTEGER_MAX),
        None,
        "Replace a worker that has finished so many jobs.",
        "recycle_jobs",
        "never",
    ),
    Setting(
        POOL,
        "recycle_memory",
        Size(limits.RECYCLE_BYTES_MIN, limits.INTEGER_MAX),
        None,
        "Replace a worker that is found with so much memory of its own.",
        "recycle_memory_bytes",
        "never",
    ),
    Setting(
        POOL,
        "recycle_age",
        Duration(limits.RECYCLE_AGE_MS_MIN, limits.DURATION_MS_MAX),
        None,
        "Replace a worker that has lived for so long.",
        "recycle_age_ms",
        "never",
    ),
    Setting(
        POOL,
        "job_output",
        Word("attributed", "plain"),
        "attributed",
        "What handlers print: each line with the kind, id and attempt of its job, or as it comes.",
        "job_output",
    ),
    Setting(
        POOL,
        "capture",
        Size(0, limits.OUTPUT_BYTES_MAX),
        0,
        "How much of the last that an attempt printed and logged is kept with its outcome.",
        "capture_bytes",
        "nothing",
    ),
    Setting(
        POOL,
        "user",
        Person("user"),
        None,
        "Run the pool as this user. Only root can.",
        "user",
        "whoever starts it",
    ),
    Setting(
        POOL,
        "group",
        Person("group"),
        None,
        "Run the pool with this group; needs a user.",
        "group",
        "the user's own",
    ),
    Setting(
        LOG,
        "format",
        # As in `logline`, which is not loaded here because commands that never log read this table too.
        Word("logfmt", "json"),
        "logfmt",
        "The form of the lines that broker and pool log on stderr.",
        "log_format",
    ),
)

QUEUE_SETTINGS: tuple[Setting, ...] = (
    Setting(
        QUEUES,
        "jobs_max",
        Number(1, limits.INTEGER_MAX),
        limits.QUEUE_JOBS_MAX_DEFAULT,
        "Jobs it may hold: scheduled, ready and leased.",
        "jobs_max",
    ),
    Setting(
        QUEUES,
        "bytes_max",
        Size(limits.QUEUE_BYTES_MAX_MIN, limits.INTEGER_MAX),
        limits.QUEUE_BYTES_MAX_DEFAULT,
        "Bytes of their payloads.",
        "bytes_max",
    ),
    Setting(
        QUEUES,
        "dead_max",
        _COUNT,
        limits.QUEUE_DEAD_MAX_DEFAULT,
        "Dead jobs that overflow=dead may make.",
        "dead_max",
    ),
    Setting(
        QUEUES,
        "overflow",
        Choice(Overflow),
        Overflow.REJECT,
        "What happens to an enqueue over a limit. reject: it is refused with queue_full. wait: it is answered when"
        " there is room, if it asks for that as well (--room-wait, wait_s, wait_ms), else refused. dead: it is"
        " kept as a dead letter.",
        "overflow",
    ),
    Setting(
        QUEUES,
        "priority",
        Number(limits.PRIORITY_MIN, limits.PRIORITY_MAX),
        None,
        "Of jobs that say nothing themselves, nor their kind. Lower runs first.",
        "priority",
        "0",
    ),
    Setting(
        QUEUES,
        "expires",
        _SOME_DURATION,
        None,
        "Dead if not started so long after the enqueue.",
        "expires_ms",
        "never",
    ),
    Setting(
        QUEUES,
        "attempts_max",
        _CHARGES,
        None,
        "Charged attempts before a job is dead.",
        "attempts_max",
        str(limits.ATTEMPTS_MAX_DEFAULT),
    ),
    Setting(
        QUEUES,
        "crashes_max",
        _CHARGES,
        None,
        "Crashes and losses before a job is dead.",
        "crashes_max",
        str(limits.CRASHES_MAX_DEFAULT),
    ),
    Setting(
        QUEUES,
        "time_limit",
        _SOME_DURATION,
        None,
        "How long one attempt may run.",
        "time_limit_ms",
        _ANY_DURATION.show(limits.TIME_LIMIT_MS_DEFAULT),
    ),
    Setting(
        QUEUES,
        "lease",
        Duration(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
        None,
        "How long an attempt is its worker's without a heartbeat.",
        "lease_ms",
        _ANY_DURATION.show(limits.LEASE_MS_DEFAULT),
    ),
    Setting(
        QUEUES,
        "backoff",
        _SOME_DURATION,
        None,
        "Wait before the second attempt; doubled for each further one.",
        "backoff_ms",
        _ANY_DURATION.show(limits.BACKOFF_MS_DEFAULT),
    ),
    Setting(
        QUEUES,
        "backoff_cap",
        _SOME_DURATION,
        None,
        "The longest such wait.",
        "backoff_cap_ms",
        _ANY_DURATION.show(limits.BACKOFF_CAP_MS_DEFAULT),
    ),
)
"""Keys of `[queues.NAME]` and of `--queue NAME:KEY=VALUE,...`."""

BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in (*SETTINGS, *QUEUE_SETTINGS)}
QUEUE_KEYS: Mapping[str, Setting] = {setting.key: setting for setting in QUEUE_SETTINGS}
QUEUE_LIMITS = frozenset(QueueRules._fields)
"""Fields of `QueueRules` itself; all others belong to its policy."""


def keys_of(table: str) -> Mapping[str, Setting]:
    """The settings of one table by key."""
    return {setting.key: setting for setting in SETTINGS if setting.table == table}
