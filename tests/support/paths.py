"""Where a process that a test starts looks for modules: the same stoker as the test, and what the test adds.

Whoever sets `PYTHONPATH` for such a process sets it to `python_path(...)`. Else that process might find the
stoker that is installed, while the test imported the one of another tree, and would test the wrong one.
"""

import os
from pathlib import Path

import stoker

TESTS = Path(__file__).parents[1]


def provider() -> Path:
    """The folder in which this process found `stoker`."""
    return Path(stoker.__file__).parents[1]


def python_path(*folders: Path) -> str:
    """These folders in front, then that of `stoker`, then what was there already."""
    there = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([*map(str, folders), str(provider()), *filter(None, there)]))
