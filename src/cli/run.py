"""`stoker run`: store a job that is a program."""

import os
import signal
from collections.abc import Callable
from typing import Any

import click

from ..config.exits import SIGNALLED, Exit
from ..config.kinds import Duration, Number, Size
from ..proto import limits
from ..proto.ids import uuid7
from ..proto.model import COMMAND
from .attached import copy, exit_status, withdraw
from .enqueue import payload_of
from .joboptions import as_keywords, job_options
from .options import checked, open_client, option_of, socket_option
from .output import OutputClosed, put, say

STATUS_MAX = 255

_KEYWORDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "env": ("env", dict),
    "pass_env": ("pass_env", list),
    "rlimits": ("rlimits", dict),
    "ok": ("ok", list),
    "retry": ("retry", list),
    "permanent": ("permanent", list),
    "stdout_max": ("stdout_bytes_max", int),
    "stderr_max": ("stderr_bytes_max", int),
    "keep_output": ("keep_output_bytes", int),
}
"""Options, what the job's arguments call them, and of which type they are there. Not given: not there."""


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r:.100} is not like NAME=VALUE")
    return name, value


def _statuses(text: str) -> list[int]:
    numbers = [int(item) if item.strip().isdecimal() else -1 for item in text.split(",")]
    if not all(0 <= number <= STATUS_MAX for number in numbers):
        raise ValueError(f"{text!r:.100} is not a list of exit statuses from 0 to {STATUS_MAX}, such as 0,3")
    return numbers


def _limit(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    kind = Size(1, limits.INTEGER_MAX) if name.endswith("bytes") else Number(1, limits.INTEGER_MAX)
    try:
        return name, kind.parse(value)
    except ValueError:
        raise ValueError(f"{text!r:.100} is not like memory_bytes=512MiB or cpu_s=60") from None


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True)
@click.option("--directory", metavar="PATH", help="Where it runs. Default: here.")
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    callback=checked(_variable),
    help="A variable; travels with the job.",
)
@click.option(
    "--pass-env", multiple=True, metavar="NAME", help="A variable that has its value from the pool."
)
@click.option(
    "--stdin", metavar="FILE|-", help="What it reads; - sends what stands on this stdin. Default: nothing."
)
@click.option(
    "--limit",
    "rlimits",
    multiple=True,
    metavar="NAME=N",
    callback=checked(_limit),
    help="memory_bytes, cpu_s, files, file_bytes, processes.",
)
@click.option(
    "--ok", metavar="N,...", callback=checked(_statuses), help="Exit statuses that are success. Default: 0."
)
@click.option("--retry", metavar="N,...", callback=checked(_statuses), help="Only these are tried again.")
@click.option(
    "--permanent", metavar="N,...", callback=checked(_statuses), help="These are never tried again."
)
@option_of(
    Size(1, limits.INTEGER_MAX), "--stdout-max", "More on stdout is an error. Default: its end is kept."
)
@option_of(Size(1, limits.INTEGER_MAX), "--stderr-max", "The same for stderr.")
@option_of(
    Size(limits.KEEP_OUTPUT_BYTES_MIN, limits.KEEP_OUTPUT_BYTES_MAX),
    "--keep-output",
    "So much of each stream goes to a file of the broker's. Default: no file.",
)
@option_of(Duration(0, limits.DAY_MS), "--grace", "Between TERM and KILL. Default: 3s.")
@click.option("--wait", is_flag=True, help="Stay attached: its streams, Ctrl-C and its exit status.")
@click.option("--tied", is_flag=True, help="With --wait: cancel it when this command ends before it.")
@job_options
@socket_option
def run(program: tuple[str, ...], socket: str | None, wait: bool, tied: bool, **options: Any) -> int:
    """Store a job that runs PROGRAM, and print its id. Write -- before a program with options of its own.

    No shell is in between. It has PATH, HOME and LANG of the pool, and what is named here; it runs here, with this umask, in a
    pool that allows commands. It is tried once, unless --attempts-max says otherwise.

    With --wait it is as if it ran here: what it writes on stdout and stderr comes out there, Ctrl-C cancels it and returns
    when nothing of it lives, and the exit code is its exit status (128 and the number of a signal that ended it, 8 if it has
    neither). Killing this command leaves the job alone, and so does a reader of its output that goes away.
    """
    from ..worker.commands.command import Command
    from ..worker.commands.program import ProgramError

    if tied and not wait:
        raise click.UsageError("--tied goes with --wait.")
    asked = _asked(options)
    try:
        Command(list(program), **asked).program({})
    except ProgramError as error:
        raise click.UsageError(f"{error}.") from None
    keywords = as_keywords(options)
    if keywords["attempts_max"] is None:
        keywords["attempts_max"] = 1
    client = open_client(socket)
    if not wait:
        put(client.enqueue(COMMAND, [list(program)], asked, **keywords).id)
        return Exit.OK
    keywords["id"] = id = keywords["id"] or uuid7()
    with client.follow(id, lossless=True, tied=tied) as following:
        try:
            # Before it exists, so that nothing is missed.
            following.begin()
            client.enqueue(COMMAND, [list(program)], asked, **keywords)
            copy(client, following, id)
        except KeyboardInterrupt:
            return withdraw(client, following, id)
        except OutputClosed:
            # A program that ran here would end by that signal. Whether the job does is said by --tied.
            say(f"stoker: nobody reads what {id} says any more")
            raise OutputClosed(SIGNALLED + signal.SIGPIPE) from None
    return exit_status(client, following, id)


def _asked(options: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the job, taken out of the options."""
    directory, stdin, grace = (options.pop(name) for name in ("directory", "stdin", "grace"))
    asked: dict[str, Any] = {"directory": os.path.abspath(directory or "."), "umask": _umask()}
    if stdin == "-":
        asked["stdin"] = payload_of("-")
    elif stdin is not None:
        asked["stdin_file"] = os.path.abspath(stdin)
    if grace is not None:
        asked["grace_s"] = grace / limits.SECOND_MS
    for option, (keyword, make) in _KEYWORDS.items():
        if value := options.pop(option):
            asked[keyword] = make(value)
    return asked


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
