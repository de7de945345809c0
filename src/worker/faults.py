"""Which exceptions of a handler are worth another attempt: `retry_on` and `permanent_on` of its kind.

    permanent_on   these and their subclasses end the job at once
    retry_on       these and their subclasses are tried again; once it is given, all others are permanent
    neither        everything is tried again

`permanent_on` goes first. A handler that raises `Retry` or `Permanent` has said what it wants, and is
asked nothing here. What is not an exception of the handler's is no business of these two either: a
time limit, a crash, a strike; and a MemoryError has an outcome of its own, unless `permanent_on` says
otherwise. Of a group of exceptions its own class counts, not those of its members.

Decided in the worker. The broker never hears of classes.
"""

from collections.abc import Mapping
from typing import Any, cast

FAULT_OPTIONS = ("retry_on", "permanent_on")

Classes = type[BaseException] | tuple[type[BaseException], ...]
"""What the options take, as `except` does."""


class Faults:
    """The two options of one kind."""

    __slots__ = ("_permanent", "_retried")

    def __init__(self, retried: tuple[type, ...] | None = None, permanent: tuple[type, ...] = ()) -> None:
        self._retried = retried
        self._permanent = permanent

    def is_permanent(self, error: BaseException) -> bool:
        """No retry shall be tried."""
        if _descends(error, self._permanent):
            return True
        if self._retried is None or isinstance(error, MemoryError):
            return False
        return not _descends(error, self._retried)


def _descends(error: BaseException, classes: tuple[type, ...]) -> bool:
    # Not by `isinstance`, which the metaclass of a stranger's class may answer as it likes.
    return any(each is one for each in type(error).__mro__ for one in classes)


LENIENT = Faults()
"""Everything is tried again."""


def faults_of(kind: str, options: Mapping[str, Any]) -> Faults:
    """Of the options of a declaration; ValueError naming the one that is wrong."""
    retried = _classes(kind, "retry_on", options.get("retry_on"))
    permanent = _classes(kind, "permanent_on", options.get("permanent_on"))
    return Faults(retried, permanent or ())


def _is_exception_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _classes(kind: str, option: str, value: object) -> tuple[type, ...] | None:
    if value is None:
        return None
    classes = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
    for each in classes:
        if not _is_exception_class(each):
            raise ValueError(
                f"{kind}: {option} takes an exception class or a tuple of them, not {each!r:.100}"
            )
    return cast("tuple[type, ...]", classes)
