"""The app's own files among all that was imported: which they are, and a digest of what they hold.

Own is what lies neither in the standard library, nor among the installed packages, nor in stoker itself;
and the package of the app, wherever it is. Files that are imported later, by a handler, are not seen.

The digest is for people, to tell one code from another; it is no proof against anybody. It goes by the
names of the modules and not by their paths, so the same code in another directory is the same.
"""

import os
import sys
import traceback
import zlib
from collections.abc import Iterable
from types import ModuleType

_INSTALLED = ("site-packages", "dist-packages")
_STOKER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_STANDARD = os.path.dirname(os.path.abspath(os.__file__))


def modules(target: str) -> dict[str, str]:
    """File by name, for each own module of the app `module:name`."""
    package = target.partition(":")[0].partition(".")[0]
    found: dict[str, str] = {}
    # The table may hold anything that was put there.
    loaded: dict[str, object] = {**sys.modules}
    for name, module in sorted(loaded.items()):
        # Not by attribute: some things that stand in for modules would import what is behind them.
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str) and (name.partition(".")[0] == package or is_own(file)):
            found[name] = os.path.abspath(file)
    return found


def is_own(file: str) -> bool:
    """Whether a file is the app's."""
    path = os.path.abspath(file)
    if file.startswith("<") or not set(_INSTALLED).isdisjoint(path.split(os.sep)):
        return False
    return not path.startswith((_STOKER + os.sep, _STANDARD + os.sep))


def digest(files: Iterable[tuple[str, str]]) -> str:
    """Eight hex digits of names and contents."""
    value = 0
    for name, file in files:
        value = zlib.crc32(name.encode("utf-8", "replace"), value)
        try:
            with open(file, "rb") as source:
                value = zlib.crc32(source.read(), value)
        except OSError:
            continue
    return f"{value:08x}"


def files_of(error: BaseException) -> list[str]:
    """Own files that a failed import was about: those of its frames, what is at fault, what it looked for."""
    found = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        found.append(error.filename)
    if isinstance(error, ModuleNotFoundError) and error.name:
        place = error.name.replace(".", os.sep)
        for root in sys.path:
            found += (os.path.join(root, f"{place}.py"), os.path.join(root, place, "__init__.py"))
    return sorted({os.path.abspath(file) for file in found if is_own(file)})
