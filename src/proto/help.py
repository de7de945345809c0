"""What `help` answers: the table of ops in words, for whoever has only a shell and a socket."""

from .messages import HelpText
from .ops import OPS, Op


def _describe(op: Op) -> dict[str, object]:
    """One op: `fields` maps each name, in the order of the wire, to what it may hold."""
    names: tuple[str, ...] = op.message._fields
    says = {
        name: rule.says if index < op.required else f"{rule.says} (optional)"
        for index, (name, rule) in enumerate(zip(names, op.rules, strict=True))
    }
    return {
        "number": op.number,
        "roles": sorted(op.roles),
        "fields": says,
        "answer": list(op.answer._fields) if op.answer else [],
    }


HELP_TEXT = HelpText({op.name: _describe(op) for op in OPS})
"""The whole table, by name."""
