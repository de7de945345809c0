"""Foreign text made harmless: what jobs, workers and files contain never commands a terminal.

Everything that Unicode does not call printable is written as an escape: C0 and C1 controls, ESC
and DEL, line and paragraph separators, bidirectional and zero-width controls, lone surrogates. The
rule is what may pass, so a control character that is invented later does not.
"""

CUT = "..."


def escape(text: str) -> str:
    """One line, whatever `text` holds: newlines and tabs become escapes too."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def escape_lines(text: str) -> list[str]:
    """The lines of `text`, each escaped. Tabs become spaces; only newlines end a line."""
    return [escape(line) for line in text.expandtabs(4).split("\n")]


def escape_bytes(data: bytes, length_max: int) -> str:
    """The beginning of `data` on one line: text where it is UTF-8, escapes elsewhere."""
    beginning = data[:length_max].decode("utf-8", "backslashreplace")
    return escape(beginning) + (CUT if len(data) > length_max else "")


def shorten(text: str, length_max: int) -> str:
    """Escaped, and cut with a mark if it is longer."""
    safe = escape(text[: length_max + 1])
    return safe if len(safe) <= length_max else safe[: length_max - len(CUT)] + CUT


def _escaped(char: str) -> str:
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    if short is not None:
        return short
    number = ord(char)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
