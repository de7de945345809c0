"""Options that several commands share, and the types of their values."""

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ..config.durations import parse_duration
from ..proto import limits

if TYPE_CHECKING:
    from ..client.sync import Client

TIMEOUT_S = 30.0
"""The longest a command waits for an answer that should come at once."""

F = TypeVar("F", bound=Callable[..., Any])


Parse = Callable[[str], Any]


def checked(parse: Parse) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """An option's callback that reads its text with `parse`, whose ValueError becomes a usage error."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, tuple):
                return tuple(parse(text) for text in cast("tuple[str, ...]", value))
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return callback


def json_of(shape: type, name: str) -> Parse:
    """Reads a JSON text whose outermost value is of one type, `name` being that with its article."""

    def parse(text: str) -> Any:
        import json

        from ..proto.codec import unique_map

        try:
            value: Any = json.loads(
                text, object_pairs_hook=unique_map, parse_constant=_no_constant, parse_float=_finite
            )
        except RecursionError:
            raise ValueError("not JSON that can be read: nested too deep") from None
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from None
        if not isinstance(value, shape):
            raise ValueError(f"must be {name}")  # noqa: TRY004 - it becomes a usage error
        return value

    return parse


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _finite(text: str) -> float:
    """A number of a JSON text; Python would read `1e999` as an infinity, which JSON cannot hold."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large a number")
    return value


def duration_option(flag: str, text: str) -> Callable[[F], F]:
    """An option like `30s`; milliseconds."""
    return click.option(flag, metavar="DURATION", callback=checked(parse_duration), help=text)


_SOCKET = click.option(
    "--socket",
    metavar="PATH",
    help="The broker's socket. Default: STOKER_SOCKET, or where this user's broker listens.",
)
_WORKERS = click.option(
    "--workers",
    type=click.IntRange(1, limits.LIST_ITEMS_MAX),
    default=os.cpu_count() or 1,
    show_default="the number of processors",
    help="Processes that run jobs, one at a time each.",
)
_NAME = click.option("--name", help="Name of the pool in `stoker status`. Default: APP.")
_DRAIN = duration_option("--drain", "How long running jobs may go on after TERM. Default: 30s.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")


def socket_option(command: F) -> F:
    """`--socket PATH`."""
    return _SOCKET(command)


def json_option(command: F) -> F:
    """`--json`."""
    return _JSON(command)


def pool_options(command: F) -> F:
    """`--workers`, `--name` and `--drain` of a pool."""
    for option in (_DRAIN, _NAME, _WORKERS):
        command = option(command)
    return command


def open_client(socket: str | None) -> "Client":
    """A client; it connects when it is used."""
    from ..client.sync import Client

    return Client(socket, timeout_s=TIMEOUT_S)


def seconds(duration_ms: int | None) -> float | None:
    """The library counts in seconds."""
    return None if duration_ms is None else duration_ms / 1000
