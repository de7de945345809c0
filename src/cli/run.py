"""`stoker run`: store a job that is a program."""

import os
from typing import Any

import click

from ..config.kinds import Duration, Number, Size
from ..proto import limits
from .enqueue import payload_of
from .joboptions import as_keywords, job_options
from .options import checked, open_client, option_of, socket_option
from .output import put

STATUS_MAX = 255


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
@option_of(Duration(0, limits.DAY_MS), "--grace", "Between TERM and KILL. Default: 3s.")
@job_options
@socket_option
def run(program: tuple[str, ...], socket: str | None, **options: Any) -> None:
    """Store a job that runs PROGRAM, and print its id. Write -- before a program with options of its own.

    No shell is in between. It has PATH, HOME and LANG of the pool, and what is named here; it runs here, with this umask, in a
    pool that allows commands. It is tried once, unless --attempts-max says otherwise.
    """
    from ..worker.commands.command import KIND, Command
    from ..worker.commands.program import ProgramError

    asked = _asked(options)
    try:
        Command(list(program), **asked).program({})
    except ProgramError as error:
        raise click.UsageError(f"{error}.") from None
    keywords = as_keywords(options)
    if keywords["attempts_max"] is None:
        keywords["attempts_max"] = 1
    put(open_client(socket).enqueue(KIND, [list(program)], asked, **keywords).id)


def _asked(options: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the job."""
    names = (
        "directory",
        "env",
        "pass_env",
        "stdin",
        "rlimits",
        "ok",
        "retry",
        "permanent",
        "stdout_max",
        "stderr_max",
        "grace",
    )
    given = {name: options.pop(name) for name in names}
    asked: dict[str, Any] = {"directory": os.path.abspath(given["directory"] or "."), "umask": _umask()}
    if given["stdin"] == "-":
        asked["stdin"] = payload_of("-")
    elif given["stdin"] is not None:
        asked["stdin_file"] = os.path.abspath(given["stdin"])
    for name, value in (
        ("env", dict(given["env"])),
        ("pass_env", list(given["pass_env"])),
        ("rlimits", dict(given["rlimits"])),
        ("ok", given["ok"]),
        ("retry", given["retry"]),
        ("permanent", given["permanent"]),
        ("stdout_bytes_max", given["stdout_max"]),
        ("stderr_bytes_max", given["stderr_max"]),
    ):
        if value:
            asked[name] = value
    if given["grace"] is not None:
        asked["grace_s"] = given["grace"] / limits.SECOND_MS
    return asked


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
