"""Log records of handlers: whose they are, and where they go if the app has not said.

Every record has `job_kind`, `job_id` and `job_attempt`, for formatters, filters and handlers of the app; they
are "", "" and 0 where no job runs. They are put there when the record is complete and not by a record
factory: to that, a handler of jobs that says `extra={"job_id": ...}` itself would be a KeyError.

An app that has set up no logging at all gets a handler for it, from INFO on, on stderr. One that has is left
alone, except that what its root logger gets is also kept where a pool captures output.
"""

import logging
import sys
import time
from typing import Any

from ..config.logline import JSON
from .context import running_job
from .output import JobOutput, attribution

_FORMAT = "%(levelname)s %(name)s: %(message)s"

_make_plain_record = logging.Logger.makeRecord


def _make_record(self: logging.Logger, *args: Any, **kwargs: Any) -> logging.LogRecord:
    record = _make_plain_record(self, *args, **kwargs)
    job, fields = running_job(), record.__dict__
    fields.setdefault("job_kind", "" if job is None else job.kind)
    fields.setdefault("job_id", "" if job is None else job.id)
    fields.setdefault("job_attempt", 0 if job is None else job.attempt)
    return record


def mark() -> None:
    """From now on records say whose they are: before the app is imported, which may log at once."""
    setattr(logging.Logger, "makeRecord", _make_record)  # noqa: B010 - checkers refuse to see it assigned


def provide_handlers(output: JobOutput) -> None:
    """After the start hooks, when the app has had its chance."""
    root = logging.root
    if not _is_set_up():
        root.addHandler(_to_stderr(output))
        if root.level == logging.WARNING:
            # Nobody has chosen that level: it is what Python begins with.
            root.setLevel(logging.INFO)
    elif output.captures and root.handlers:
        root.addHandler(_ToTail(output))


def _is_set_up() -> bool:
    loggers = [
        logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)
    ]
    handlers = [handler for logger in (logging.root, *loggers) for handler in logger.handlers]
    # Libraries have null handlers by good custom.
    return any(not isinstance(handler, logging.NullHandler) for handler in handlers)


def _to_stderr(output: JobOutput) -> logging.Handler:
    handler = _ToStderr()
    # A line of JSON has the time already.
    form = _FORMAT if output.rules.form == JSON and output.rules.attributed else f"%(asctime)s {_FORMAT}"
    handler.setFormatter(_Formatter(form, attributes=not output.rules.attributed))
    return handler


class _Formatter(logging.Formatter):
    """UTC in milliseconds, like the daemons; and the job, if the stream does not say it."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, form: str, *, attributes: bool) -> None:
        super().__init__(form)
        self._attributes = attributes

    def format(self, record: logging.LogRecord) -> str:
        job = running_job() if self._attributes else None
        return (attribution(job) if job is not None else "") + super().format(record)


class _ToStderr(logging.Handler):
    """To `sys.stderr` as it is at the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if sys.stderr is not None:
                sys.stderr.write(self.format(record) + "\n")
        except Exception:  # noqa: BLE001 - as handlers of the standard library do
            self.handleError(record)


class _ToTail(logging.Handler):
    """Into what is kept of the attempt."""

    def __init__(self, output: JobOutput) -> None:
        super().__init__()
        self._output = output
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        job = running_job()
        if job is not None:
            try:
                self._output.say(job.token, self.format(record) + "\n")
            except Exception:  # noqa: BLE001 - as handlers of the standard library do
                self.handleError(record)
