"""Whether arguments fit a handler, asked without running any of it.

The answer comes from a call: of an empty function with the handler's own parameters. So it is Python
itself that decides, with its own words ("missing 1 required positional argument: 'body'"), and a
fitting call costs a tenth of a microsecond. `inspect` could tell the same, twenty times slower, and
would be the largest module that an app loads; it is left to callables that are no plain functions.

What counts is the function that will be called, not one that it wraps: a decorator may add arguments
or take some away, so what is under it says nothing about what fits. A callable whose parameters nobody
can know takes everything.
"""

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

_VARIADIC = 0x04
_KEYWORDS = 0x08
"""`CO_VARARGS` and `CO_VARKEYWORDS`."""

Fit = Callable[..., object]
"""Called with arguments, it raises TypeError if they do not fit, and does nothing else."""


def fit_of(function: Callable[..., Any], name: str | None = None) -> Fit:
    """The check for one handler; to be made once and kept. `name`: what errors call it, if not by its own."""
    if type(function) is FunctionType:
        return _empty_twin(function, name or function.__qualname__)
    from inspect import signature

    try:
        return signature(function, follow_wrapped=False).bind
    except (TypeError, ValueError):
        return _anything


def _empty_twin(function: FunctionType, name: str) -> Fit:
    names: dict[str, Any] = {}
    code = f"def twin({_parameters(function.__code__)}): pass"
    exec(code, names)  # noqa: S102 - foreign are only names of parameters, which the compiler has seen before
    twin: FunctionType = names["twin"]
    twin.__defaults__, twin.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    twin.__qualname__ = name
    return twin


def _parameters(code: CodeType) -> str:
    """The parameters as they are written, without defaults."""
    count = code.co_argcount
    by_keyword = count + code.co_kwonlyargcount
    names = list(code.co_varnames)
    parts = names[:count]
    if code.co_posonlyargcount:
        parts.insert(code.co_posonlyargcount, "/")
    if code.co_flags & _VARIADIC:
        parts.append("*" + names[by_keyword])
    elif code.co_kwonlyargcount:
        parts.append("*")
    parts += names[count:by_keyword]
    if code.co_flags & _KEYWORDS:
        parts.append("**" + names[by_keyword + bool(code.co_flags & _VARIADIC)])
    return ", ".join(parts)


def _anything(*_args: object, **_kwargs: object) -> None:
    """For a callable that does not say what it takes."""
