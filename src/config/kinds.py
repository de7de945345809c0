"""What a setting may hold: how text and TOML become its value, what is allowed, and the way back.

Each kind says in words what it allows, once, for the error, for `--help` and for the page of the
documentation. Values are in one unit each: milliseconds, bytes. A number stands for itself only where
nothing can be mistaken: counts and bytes. Durations have a unit always, and modes are text, because
`420` in a TOML file is another mode than `0644` to a person.

Names of users and groups are kept as they were written; whoever needs them asks `people`.
"""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from ..proto import limits
from .durations import format_duration, format_size, parse_duration, parse_size


class Kind:
    """Text that `check` accepts as it is. The other kinds say more."""

    alone: str | None = None
    """What a flag without a value means; None: it needs one."""

    def __init__(self, word: str, allowed: str, check: Callable[[str], object] = bool) -> None:
        self.word = word
        """What `--help` calls a value."""
        self.allowed = allowed
        """In words; reads on from "is not"."""
        self._check = check

    def parse(self, text: str) -> Any:
        """The value of a flag's or a variable's text; ValueError if it is not allowed."""
        if not self._check(text):
            raise ValueError(text)
        return text

    def take(self, value: object) -> Any:
        """The value of what TOML holds; ValueError if it is not allowed, also because of its type."""
        if type(value) is not str:
            raise ValueError(value)
        return self.parse(value)

    def show(self, value: Any) -> Any:
        """As a file would have it: text, a number, or a list of those."""
        return value


class _Range(Kind):
    def __init__(self, word: str, allowed: str, low: int, high: int) -> None:
        super().__init__(word, allowed)
        self.low, self.high = low, high

    def _within(self, value: int) -> int:
        if not self.low <= value <= self.high:
            raise ValueError(value)
        return value


class Number(_Range):
    """A whole number."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__("NUMBER", f"a number from {low} to {high}", low, high)

    def parse(self, text: str) -> int:
        digits = text.removeprefix("-")
        # isascii: isdigit alone takes digits of every script.
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
            raise ValueError(text)
        return self._within(int(text))

    def take(self, value: object) -> int:
        if type(value) is not int:
            raise ValueError(value)
        return self._within(value)


class Size(_Range):
    """Bytes."""

    def __init__(self, low: int, high: int) -> None:
        allowed = f"a size such as 512, 64KiB, 1MiB or 2GiB, from {format_size(low)} to {format_size(high)}"
        super().__init__("SIZE", allowed, low, high)

    def parse(self, text: str) -> int:
        return self._within(parse_size(text))

    def take(self, value: object) -> int:
        return self._within(value) if type(value) is int else super().take(value)

    def show(self, value: Any) -> str:
        return format_size(value)


class Duration(_Range):
    """Milliseconds."""

    def __init__(self, low: int, high: int) -> None:
        span = f"from {format_duration(low)} to {format_duration(high)}"
        super().__init__("DURATION", f"a duration such as 500ms, 30s, 5m, 2h or 1d, {span}", low, high)

    def parse(self, text: str) -> int:
        return self._within(parse_duration(text))

    def show(self, value: Any) -> str:
        return format_duration(value)


class Word(Kind):
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        super().__init__("|".join(words), f"one of {', '.join(words)}", words.__contains__)


class Choice(Word):
    """A member of an enumeration of words."""

    def __init__(self, choices: type[StrEnum]) -> None:
        super().__init__(*choices)
        self._choices = choices

    def parse(self, text: str) -> StrEnum:
        return self._choices(super().parse(text))

    def show(self, value: Any) -> str:
        return str(value)


class Path(Kind):
    """A path. In a file it must be absolute, because a file is read from any directory."""

    def __init__(self, word: str) -> None:
        super().__init__(word, "a path (in a file an absolute one)", lambda text: text and "\0" not in text)

    def take(self, value: object) -> str:
        path: str = super().take(value)
        if not path.startswith("/"):
            raise ValueError(value)
        return path


class Mode(Kind):
    """Permission bits, as an integer."""

    def __init__(self) -> None:
        super().__init__(
            "MODE", 'octal text from "0600" to "0666", for its owner to read and write, no x bit'
        )

    def parse(self, text: str) -> int:
        if not _MODE(text):
            raise ValueError(text)
        return int(text, 8)

    def show(self, value: Any) -> str:
        return f"{value:04o}"


_MODE = re.compile("0?6[0246][0246]").fullmatch

_PERSON = re.compile(r"[^\s\x00-\x20\x7f@,:/-][^\s\x00-\x20\x7f@,:/]{0,127}").fullmatch
"""Loose, because directory services have names of many a form; it is looked up anyway."""


class Person(Kind):
    """The name or the number of one user or one group. In a file a number may stand as such."""

    def __init__(self, what: str) -> None:
        super().__init__(what.upper(), f"the name or number of a {what}", _PERSON)

    def take(self, value: object) -> Any:
        return self.parse(str(value)) if type(value) is int else super().take(value)


class People(Kind):
    """Users and groups, as a tuple of names and numbers; groups begin with @."""

    def __init__(self) -> None:
        super().__init__("NAME,...", 'a list of users and groups such as "alice", "@ops", "1000", "@1000"')

    def parse(self, text: str) -> tuple[str, ...]:
        return tuple(self._one(item.strip()) for item in text.split(","))

    def take(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise ValueError(value)  # noqa: TRY004 - one kind of error for all that is not allowed
        items: list[object] = [*value]
        return tuple(self._one(str(item) if type(item) is int else item) for item in items)

    def show(self, value: Any) -> list[str]:
        return list(value)

    @staticmethod
    def _one(item: object) -> str:
        if type(item) is not str or not _PERSON(item.removeprefix("@")):
            raise ValueError(item)
        return item


class Turns(Kind):
    """Queues that a pool takes jobs from, as a tuple of (name, weight): in order if all weights are 0."""

    def __init__(self) -> None:
        order = 'queues, each once: in order ("mail,default"; in a file ["mail", "default"])'
        weights = f'all with weights from 1 to {limits.WEIGHT_MAX} ("mail=3,default=1")'
        super().__init__("QUEUE,...", f"a list of {order}, or {weights}")

    def parse(self, text: str) -> tuple[tuple[str, int], ...]:
        return self._checked([self._one(item.strip()) for item in text.split(",")])

    def take(self, value: object) -> tuple[tuple[str, int], ...]:
        if not isinstance(value, list):
            raise ValueError(value)  # noqa: TRY004 - one kind of error for all that is not allowed
        items: list[object] = [*value]
        return self._checked([self._one(item) for item in items])

    def show(self, value: Any) -> list[str]:
        return [f"{name}={weight}" if weight else name for name, weight in value]

    @staticmethod
    def _one(item: object) -> tuple[str, int]:
        if type(item) is not str:
            raise ValueError(item)
        name, equals, weight = item.partition("=")
        digits = weight.isascii() and weight.isdigit() and len(weight) <= len(str(limits.WEIGHT_MAX))
        if not is_queue_name(name) or (equals and not (digits and 1 <= int(weight) <= limits.WEIGHT_MAX)):
            raise ValueError(item)
        return name, int(weight) if equals else 0

    @staticmethod
    def _checked(turns: list[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        weights = [weight for _, weight in turns]
        is_mixed = any(weights) and not all(weights)
        if is_mixed or len({name for name, _ in turns}) < len(turns) or len(turns) > limits.POOL_QUEUES_MAX:
            raise ValueError(turns)
        return tuple(turns)


ANY = "any"


class Programs(Kind):
    """Programs that jobs may run: a tuple of absolute paths, which is empty for every program there is."""

    alone: str | None = ANY

    def __init__(self) -> None:
        super().__init__(
            "any|PATH,...", '"any", or a list of absolute paths ("/usr/bin/gzip,/opt/app/bin/report")'
        )

    def parse(self, text: str) -> tuple[str, ...]:
        return () if text == ANY else self._checked(text.split(","))

    def take(self, value: object) -> tuple[str, ...]:
        if value == ANY:
            return ()
        if not isinstance(value, list):
            raise ValueError(value)  # noqa: TRY004 - one kind of error for all that is not allowed
        items: list[object] = [*value]
        return self._checked(items)

    def show(self, value: Any) -> list[str]:
        return list(value) or [ANY]

    @staticmethod
    def _checked(paths: Sequence[object]) -> tuple[str, ...]:
        texts = [path for path in paths if type(path) is str and path.startswith("/") and "\0" not in path]
        if not texts or len(texts) < len(paths) or len(texts) > limits.POOL_PROGRAMS_MAX:
            raise ValueError(paths)
        return tuple(texts)


_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")


def is_queue_name(text: str) -> bool:
    """Whether a queue can be called that."""
    return 0 < len(text) <= limits.NAME_BYTES_MAX and _NAME_CHARACTERS.issuperset(text)
