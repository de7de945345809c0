"""Errors, and their stable code words.

    StokerError
      RefusedError               the broker understood and said no; `code` is the wire's word
        JobNotFoundError ... one class a code word, see `REFUSALS`
      OutcomeUnknown             the connection ended before the answer: it may or may not have happened
      BrokerUnreachableError     nothing was sent: no socket, nobody listening, not allowed
      ClientTimeoutError         the broker is there but did not answer in time
      ProtocolError
        LocalProtocolError       this side was about to send something illegal: a bug here
        RemoteProtocolError      the other side sent something illegal

A refusal changes nothing. Names are the code word in camel case with `Error` behind it.
"""

from collections.abc import Mapping


class StokerError(Exception):
    """Anything stoker raises on purpose."""


class RefusedError(StokerError):
    """The broker refused a request. `code` is stable; `message` is for people and may change."""

    code = "refused"

    def __init__(self, message: str, *, detail: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail: Mapping[str, object] = detail or {}


class OutcomeUnknown(StokerError):
    """The connection was lost before the answer came. Repeating the request with the same id is safe."""

    def __init__(self, message: str, *, job_id: str | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id


class BrokerUnreachableError(StokerError):
    """No connection to a broker; nothing was sent."""


class ClientTimeoutError(StokerError):
    """No answer within the caller's own time limit for a request that changes nothing."""


class ProtocolError(StokerError):
    """Bytes or messages that the protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """This side tried to send something illegal. Nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something illegal. The connection is over; `code` says what it is told."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


REFUSALS: dict[str, str] = {
    # Mistakes in the bytes. The connection ends after the answer.
    "bad_frame": "The frame is not one msgpack array of the documented shape.",
    "frame_too_large": "The frame is longer than its op allows. No byte of it was executed.",
    "frame_timeout": "The frame or line stayed incomplete for too long.",
    "handshake_timeout": "The connection said nothing for too long.",
    "http_refused": "This is not an HTTP port. Nothing after the first line was read.",
    "too_many_connections": "The broker's limit of connections, in all or for one user, is reached.",
    # Mistakes in one message. The connection goes on.
    "bad_message": "A field is missing, has the wrong type or is out of range; the message names it.",
    "unknown_op": "There is no such op.",
    "forbidden": "The role of this connection may not use this op.",
    "wrong_state": "The op is not legal here: `hello` comes first, or came already.",
    "version_mismatch": "The peer speaks a protocol version this broker does not.",
    "payload_too_large": "Payload or result is over its limit.",
    # Refusals by the rules of the queue.
    "conflict": "The job id is taken by a job with another body.",
    "queue_full": "The queue has reached its limit of jobs or bytes; `detail` names it, and says with `waits`"
    " whether an enqueue with `wait_ms` may wait for room. Or all queues together have reached theirs, or there"
    " would be too many queues.",
    "ids_full": "Too many job ids are being remembered.",
    "waits_full": "Too many requests are waiting for their answer.",
    "pools_full": "As many supervisors are connected as the broker has room for. There is room when one ends.",
    "kinds_full": "There would be more kinds than the broker keeps. Those that no pool and no live job names are"
    " forgotten after a while.",
    "storage_full": "The disk is full or nearly so; enqueues are refused until space returns.",
    "job_not_found": "No such job: it never existed, was dropped, or is past its retention.",
    "too_late": "The job is already in a final state, which `detail` names.",
    "not_dead": "Only a dead job can be kicked; `detail` names its state.",
    "not_finished": "Only a finished job can be dropped; cancel it first.",
    "lease_lost": "The token is not that of a live lease: another attempt may be running.",
    "shutting_down": "The broker is stopping. Try again when it is back.",
    "snapshot_failed": "The snapshot could not be written; the message says why.",
    "name_taken": "A snapshot of that name exists. stoker never overwrites one.",
    "internal": "A fault of the broker itself; its log has the details.",
}
"""Every code word with its meaning. `docs/protocol.md` prints this table."""


class ConflictError(RefusedError):
    code = "conflict"


class QueueFullError(RefusedError):
    code = "queue_full"


class StorageFullError(RefusedError):
    code = "storage_full"


class JobNotFoundError(RefusedError):
    code = "job_not_found"


class TooLateError(RefusedError):
    code = "too_late"


class NotDeadError(RefusedError):
    code = "not_dead"


class NotFinishedError(RefusedError):
    code = "not_finished"


class LeaseLostError(RefusedError):
    code = "lease_lost"


class ForbiddenError(RefusedError):
    code = "forbidden"


class PayloadTooLargeError(RefusedError):
    code = "payload_too_large"


class BadMessageError(RefusedError):
    code = "bad_message"


_BY_CODE: dict[str, type[RefusedError]] = {
    cls.code: cls
    for cls in (
        ConflictError,
        QueueFullError,
        StorageFullError,
        JobNotFoundError,
        TooLateError,
        NotDeadError,
        NotFinishedError,
        LeaseLostError,
        ForbiddenError,
        PayloadTooLargeError,
        BadMessageError,
    )
}


def refusal(code: str, message: str, detail: Mapping[str, object] | None = None) -> RefusedError:
    """The exception for a wire refusal. A code word without a class of its own keeps its word."""
    error = _BY_CODE.get(code, RefusedError)(message, detail=detail)
    error.code = code
    return error
