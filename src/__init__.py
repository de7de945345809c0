"""stoker: a durable job queue for one Linux host.

    from stoker import App, Client, Permanent, Retry, current_job

Every name is loaded when it is first used: importing the package costs next to nothing, and a client
loads neither the broker nor the worker.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client.handle import JobHandle, JobOutcome
    from .client.pipeline import EnqueueManyError
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
    from .worker.errors import JobCancelled, JobTimeout, Permanent, Retry

__version__ = "0.1.0"

__all__ = [
    "App",
    "BadMessageError",
    "BrokerUnreachableError",
    "Client",
    "ClientTimeoutError",
    "ConflictError",
    "CurrentJob",
    "EnqueueManyError",
    "ForbiddenError",
    "Handler",
    "JobCancelled",
    "JobHandle",
    "JobNotFoundError",
    "JobOutcome",
    "JobSpec",
    "JobTimeout",
    "LeaseLostError",
    "LocalProtocolError",
    "NotDeadError",
    "NotFinishedError",
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
]

_MODULES = {
    "worker.app": ("App", "Handler"),
    "worker.context": ("CurrentJob", "current_job"),
    "worker.errors": ("JobCancelled", "JobTimeout", "Permanent", "Retry"),
    "client.sync": ("Client",),
    "client.handle": ("JobHandle", "JobOutcome"),
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
