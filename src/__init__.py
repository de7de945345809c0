"""stoker: a durable job queue for one Linux host.

    from stoker import App, Client, Permanent, Retry, current_job

Every name is loaded when it is first used: importing the package costs next to nothing, and a client
loads neither the broker nor the worker.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client.aio import AsyncClient
    from .client.handle import AsyncJobHandle, JobHandle, JobOutcome
    from .client.pipeline import EnqueueManyError
    from .client.result import JobCancelledError, JobDeadError, JobUnfinishedError, NoResultError
    from .client.spec import JobSpec, OptionError
    from .client.sync import Client
    from .client.values import ValueRefusedError
    from .proto.errors import (
        BadMessageError,
        BrokerUnreachableError,
        ClientTimeoutError,
        ConflictError,
        ForbiddenError,
        JobNotFoundError,
        LeaseLostError,
        LocalProtocolError,
        NotDeadError,
        NotFinishedError,
        OutcomeUnknown,
        PayloadTooLargeError,
        ProtocolError,
        QueueFullError,
        RefusedError,
        RemoteProtocolError,
        StokerError,
        StorageFullError,
        TooLateError,
    )
    from .worker.app import App, Handler
    from .worker.context import CurrentJob, current_job
    from .worker.deaths import DeadJob
    from .worker.errors import JobCancelled, JobTimeout, Permanent, Retry
    from .worker.once import OnceError, prune_once

__version__ = "0.1.0"

__all__ = [
    "App",
    "AsyncClient",
    "AsyncJobHandle",
    "BadMessageError",
    "BrokerUnreachableError",
    "Client",
    "ClientTimeoutError",
    "ConflictError",
    "CurrentJob",
    "DeadJob",
    "EnqueueManyError",
    "ForbiddenError",
    "Handler",
    "JobCancelled",
    "JobCancelledError",
    "JobDeadError",
    "JobHandle",
    "JobNotFoundError",
    "JobOutcome",
    "JobSpec",
    "JobTimeout",
    "JobUnfinishedError",
    "LeaseLostError",
    "LocalProtocolError",
    "NoResultError",
    "NotDeadError",
    "NotFinishedError",
    "OnceError",
    "OptionError",
    "OutcomeUnknown",
    "PayloadTooLargeError",
    "Permanent",
    "ProtocolError",
    "QueueFullError",
    "RefusedError",
    "RemoteProtocolError",
    "Retry",
    "StokerError",
    "StorageFullError",
    "TooLateError",
    "ValueRefusedError",
    "__version__",
    "current_job",
    "prune_once",
]

_MODULES = {
    "worker.app": ("App", "Handler"),
    "worker.context": ("CurrentJob", "current_job"),
    "worker.deaths": ("DeadJob",),
    "worker.errors": ("JobCancelled", "JobTimeout", "Permanent", "Retry"),
    "worker.once": ("OnceError", "prune_once"),
    "client.sync": ("Client",),
    "client.aio": ("AsyncClient",),
    "client.handle": ("AsyncJobHandle", "JobHandle", "JobOutcome"),
    "client.result": ("JobCancelledError", "JobDeadError", "JobUnfinishedError", "NoResultError"),
    "client.spec": ("JobSpec", "OptionError"),
    "client.pipeline": ("EnqueueManyError",),
    "client.values": ("ValueRefusedError",),
}
"""Where names live; all others are errors of `proto`."""

_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOMES.get(name, 'proto.errors')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
