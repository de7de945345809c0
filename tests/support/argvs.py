"""Programs for `run`, as lists of arguments. The last of them is a mark, if one is given: see `programs`."""

import sys
import textwrap

IGNORES_TERM = "trap '' TERM; echo ready; while :; do sleep $1; done"
"""A shell that only KILL ends, with a child that a signal to all of the tree ends, and that is replaced."""


def shell(text: str, *arguments: str) -> list[str]:
    """A shell with a script; its arguments are $1 and so on."""
    return ["sh", "-c", text, "sh", *arguments]


def python(text: str, *arguments: str) -> list[str]:
    """An interpreter with next to nothing loaded, and a script; its arguments are sys.argv[1] and so on."""
    return [sys.executable, "-ISs", "-c", textwrap.dedent(text), *arguments]
