"""Errors of commands: to each its exit code, and one line that says what to do."""

from ..client.pipeline import EnqueueManyError
from ..client.spec import OptionError
from ..client.values import ValueRefusedError
from ..config.exits import Exit
from ..proto.address import AddressError
from ..proto.errors import (
    BrokerUnreachableError,
    ClientTimeoutError,
    JobNotFoundError,
    OutcomeUnknown,
    RefusedError,
)
from .escape import escape

_CODES: tuple[tuple[type[Exception], Exit], ...] = (
    (JobNotFoundError, Exit.NOT_FOUND),
    (RefusedError, Exit.REFUSED),
    (BrokerUnreachableError, Exit.UNREACHABLE),
    (ClientTimeoutError, Exit.TIMED_OUT),
    (OutcomeUnknown, Exit.UNKNOWN_OUTCOME),
    (AddressError, Exit.USAGE),
    (OptionError, Exit.USAGE),
    (ValueRefusedError, Exit.USAGE),
)

ADVICE = {
    "conflict": "use another --id, or enqueue exactly what was enqueued before",
    "queue_full": "raise that limit, or start more workers",
    "storage_full": "free disk space; running jobs go on",
    "ids_full": "wait until older ids are forgotten",
    "job_not_found": "see `stoker jobs`",
    "too_late": "see `stoker show ID`",
    "not_dead": "see `stoker show ID`",
    "not_finished": "`stoker cancel ID` does that",
    "forbidden": "run this as the broker's user or as root, or let its [access] name you",
    "shutting_down": "try again when the broker is back",
    "name_taken": "choose another name",
    "too_many_connections": "close some, or try again later",
}
"""What to do about a refusal, by its code word. ID stands for the job that it is about, if it names one."""


def exit_code(error: Exception) -> Exit:
    """The exit code of an error that ended a command."""
    if isinstance(error, EnqueueManyError) and isinstance(error.__cause__, Exception):
        return exit_code(error.__cause__)
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILURE)


def error_line(error: Exception) -> str:
    """What went wrong and what to do, on one line, harmless to a terminal."""
    text = str(error) or type(error).__name__
    if isinstance(error, RefusedError):
        text = f"{error.code}: {text}"
        # What the broker says of namespaces has its own advice.
        if error.code in ADVICE and "namespace" not in error.detail:
            text = f"{text.rstrip('.')}; {_advice(error)}"
    return f"stoker: {escape(text)}"


def _advice(error: RefusedError) -> str:
    if error.code == "queue_full" and error.detail.get("waits"):
        return "wait for room (--room-wait), or raise that limit"
    return ADVICE[error.code].replace("ID", str(error.detail.get("id") or "ID"))
