"""`stoker`: the group of all commands, and the one place where errors become exit codes.

A command's module is imported when the command is used, so that `stoker enqueue` starts without
trio, SQLite or the broker. For the same reason the summaries for `--help` stand here.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from .. import __version__
from ..config.exits import INTERRUPTED, Exit
from ..config.mistakes import SettingError
from ..proto import limits
from ..proto.address import AddressError
from ..proto.errors import StokerError
from .descriptors import ensure
from .output import OutputClosed, flush, say

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "up": ("up", "Run a broker and a pool of workers in the foreground."),
        "broker": ("daemons", "Run the broker alone."),
        "pool": ("daemons", "Run a pool of workers alone."),
        "demo": ("daemons", "Digest the standard library through two kills, and check it."),
    },
    "Jobs": {
        "enqueue": ("enqueue", "Store a job and print its id."),
        "run": ("run", "Store a job that runs a program, and print its id."),
        "tail": ("tail", "What the program of a job says."),
        "wait": ("job", "Wait until a job is finished and print its result."),
        "show": ("show", "Everything about one job."),
        "why": ("job", "Why a job is where it is and not running."),
        "cancel": ("job", "Withdraw a job, also one that is running."),
        "kick": ("dead", "Revive dead jobs."),
        "drop": ("dead", "Delete finished jobs."),
    },
    "Operate": {
        "status": ("status", "Queues, pools, workers, storage and warnings."),
        "jobs": ("jobs", "List jobs."),
        "pause": ("flow", "Hand out no more jobs of a queue, or of any."),
        "resume": ("flow", "End a pause or a drain."),
        "drain": ("flow", "Hand out no more jobs and wait until none is running."),
        "snapshot": ("flow", "Have the broker write a copy of its journal."),
        "reload": ("reload", "Have pools load their code anew, and wait until they have."),
        "config": ("config", "The settings as they are, and where each came from."),
        "doctor": ("doctor", "What is wrong with this host or the journal, and what to do."),
        "decode": ("decode", "Make a recorded byte stream readable."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
"""Name to module and summary."""


class Commands(click.Group):
    """Finds commands by name in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".{COMMANDS[cmd_name][0]}", __package__)
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"stoker {__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
def cli() -> None:
    """A durable job queue for one Linux host."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code. Everything said about errors is on stderr by then."""
    try:
        ensure(limits.DESCRIPTORS_MIN, "stoker")
        code = cli.main(args=list(arguments), prog_name="stoker", standalone_mode=False)
        flush()
    except OutputClosed as closed:
        _abandon_output()
        return closed.exit_code
    except click.ClickException as error:
        return _usage(error)
    except click.Abort:
        return INTERRUPTED
    except SettingError as error:
        return _misconfigured(error)
    except (StokerError, AddressError, OSError) as error:
        return _failed(error)
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 gets escapes in place of a crash.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def _usage(error: click.ClickException) -> int:
    from .escape import escape

    where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "stoker"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    else:
        text = escape(error.format_message())
        say(f"{where}: {text}{'' if text.endswith(('.', '?', '?)')) else '.'} See `{where} --help`.")
    return error.exit_code


def _misconfigured(error: SettingError) -> int:
    from .escape import escape

    for line in error.lines:
        say(f"stoker: {escape(line)}")
    return Exit.CONFIG


def _failed(error: Exception) -> int:
    from .failure import error_line, exit_code

    say(error_line(error))
    try:
        flush()
    except OSError:
        # What could not be written stays unwritten: the interpreter would end with a code of its own.
        _abandon_output()
    return exit_code(error)


def _abandon_output() -> None:
    # The interpreter flushes stdout once more at its end, and would complain.
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
