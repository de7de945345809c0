"""The table of limits in `docs/configuration.md`, made from `src/proto/limits.py`.

Run it to print the table: `PYTHONPATH=tests .venv/bin/python -m support.limits_table`.
"""

import ast
from collections.abc import Iterator

from support import sources

from stoker.config.durations import format_duration, format_size
from stoker.proto import limits

UNITS = {"KIB", "MIB", "GIB", "SECOND_MS", "MINUTE_MS", "HOUR_MS", "DAY_MS"}


def table() -> str:
    """Markdown, one row a limit, in the order of the file."""
    rows = [f"| `{name}` | {shown(name)} | {reason} |" for name, reason in constants() if name not in UNITS]
    return "\n".join(["| limit | value | why |", "|---|---|---|", *rows])


def constants() -> Iterator[tuple[str, str]]:
    """Name and reason of every constant; the reason is the text that follows it, if there is one."""
    body = sources.tree_of(sources.SRC / "proto" / "limits.py").body
    for node, following in zip(body, [*body[1:], None], strict=True):
        name = assigned_name(node)
        if name is not None:
            yield name, text_of(following)


def assigned_name(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def text_of(node: ast.stmt | None) -> str:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return " ".join(node.value.value.split()).replace("|", "\\|")
    return ""


def shown(name: str) -> str:
    """The value in its largest exact unit, as the command line would take it."""
    value = getattr(limits, name)
    words = name.split("_")
    if "MS" in words:
        return format_duration(value)
    if "BYTES" in words:
        return format_size(value)
    return f"{value:,}" if isinstance(value, int) else f"{value}"


if __name__ == "__main__":
    print(table())
