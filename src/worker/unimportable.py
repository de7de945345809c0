"""What is told of an app that does not import: where it went wrong, or what to write in place of its name.

A traceback is for a fault in the app's own code. Where Python only did not find what was named, there is no
such code, and a person wants to know where it was looked for.
"""

import os
import sys
import traceback

from ..proto import limits
from .control import Failed
from .report import cut, is_from_outside, reason_of, report_of


def failure_of(target: str, error: BaseException) -> Failed:
    """The message of a zygote whose app `target`, as `module:name`, raised `error`."""
    reason = reason_of(error)
    if is_from_outside(error):
        return Failed(reason, report_of(error))
    if isinstance(error, SyntaxError):
        shown = "".join(traceback.format_exception_only(error)).rstrip()
        return Failed(reason, cut(shown, limits.REPORT_BYTES_MAX))
    advice = _advice(target.partition(":")[0], error)
    return Failed(reason, f"{reason}\n  {advice}" if advice else reason)


def _advice(module: str, error: BaseException) -> str:
    if isinstance(error, AttributeError | TypeError):
        return "write APP as module:name, the name being that of a stoker.App in the module"
    if not isinstance(error, ModuleNotFoundError) or not f"{module}.".startswith(f"{error.name}."):
        return ""
    if module.endswith(".py"):
        return f"write the name of the module, not of its file: {module.removesuffix('.py')}:app"
    return (
        f"modules are looked up in {os.getcwd()}, where this was started,"
        f" then in PYTHONPATH and the packages of {sys.executable}"
    )
