"""What is wrong with a configuration: all of it at once, one line for each mistake.

A line begins with where the mistake is (a file and its line, an environment variable, a flag), names
the key, and says what is allowed. Light, because commands of the client load it too.
"""

from collections.abc import Iterable


class SettingError(ValueError):
    """Settings are wrong. `lines` has one line for each mistake."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean x?` where one of the known words is much like it, else nothing."""
    # Seldom wanted, and not free.
    import difflib

    found = difflib.get_close_matches(word.replace("-", "_"), list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""
