"""Options that several commands share, and the types of their values."""

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ..config.kinds import Duration, Kind
from ..proto import limits, rules

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


def of_kind(kind: Kind) -> Parse:
    """Reads what a setting of that kind would hold."""

    def parse(text: str) -> Any:
        try:
            return kind.parse(text)
        except ValueError:
            raise ValueError(f"{text!r:.100} is not {kind.allowed}") from None

    return parse


def json_of(shape: type, name: str) -> Parse:
    """Reads a JSON text whose outermost value is of one type, `name` being that with its article."""

    def parse(text: str) -> Any:
        import json

        try:
            value: Any = json.loads(
                text, object_pairs_hook=_map, parse_constant=_no_constant, parse_float=_finite
            )
        except RecursionError:
            raise ValueError("not JSON that can be read: nested too deep") from None
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from None
        if not isinstance(value, shape):
            raise ValueError(f"must be {name}")  # noqa: TRY004 - it becomes a usage error
        return value

    return parse


def _map(pairs: list[tuple[str, Any]]) -> Any:
    """A map without double keys, or the datetime that it spells."""
    from ..client.values import instant_of_map
    from ..proto.codec import unique_map

    return instant_of_map(unique_map(pairs))


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _finite(text: str) -> float:
    """A number of a JSON text; Python would read `1e999` as an infinity, which JSON cannot hold."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large a number")
    return value


ANY_DURATION = Duration(0, limits.DURATION_MS_MAX)
NAME = Kind("NAME", rules.NAME.says, rules.is_name)
"""Of a job, a kind or a queue."""


def option_of(kind: Kind, flag: str, text: str) -> Callable[[F], F]:
    """An option that holds what a setting of that kind would."""
    return click.option(flag, metavar=kind.word, callback=checked(of_kind(kind)), help=text)


def duration_option(flag: str, text: str) -> Callable[[F], F]:
    """An option like `30s`; milliseconds."""
    return option_of(ANY_DURATION, flag, text)


def name_argument(name: str, *, required: bool = True) -> Callable[[F], F]:
    """An argument that names a job, a kind or a queue."""
    return click.argument(name, required=required, callback=checked(of_kind(NAME)))


_SOCKET = click.option(
    "--socket",
    metavar="PATH",
    help="The broker's socket. Default: STOKER_SOCKET, the settings file, or where this user's broker listens.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")


_RELOAD = click.option(
    "--reload", is_flag=True, help="For development: load the code anew when a file of it changes."
)


def reload_option(command: F) -> F:
    """`--reload`."""
    return _RELOAD(command)


def socket_option(command: F) -> F:
    """`--socket PATH`."""
    return _SOCKET(command)


def json_option(command: F) -> F:
    """`--json`."""
    return _JSON(command)


def open_client(socket: str | None) -> "Client":
    """A client; it connects when it is used. Without a path it goes where the settings file says."""
    from ..client.sync import Client

    return Client(socket if socket is not None else of_file("socket"), timeout_s=TIMEOUT_S)


def of_file(key: str) -> str | None:
    """A path of `[broker]` that the settings file has, unless the environment, which wins, has one."""
    if os.environ.get(f"STOKER_{key.upper()}"):
        return None
    from ..config.place import place

    found = place(None, os.environ, os.getuid())
    # Mostly there is none, and then a command need not load what reads it.
    if found is None or not (found.is_named or os.path.exists(found.path)):
        return None
    from ..config.file import read
    from ..config.sources import path_of_broker

    return path_of_broker(read(found), key)


def seconds(duration_ms: int | None) -> float | None:
    """The library counts in seconds."""
    return None if duration_ms is None else duration_ms / 1000
