"""All harnesses there are: the constants `HARNESS` or `HARNESSES` of the modules of `support.faults`.

Importing a module must start nothing: this looks at all of them.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path

from support.proof.harness import Harness

FAULTS = Path(__file__).parents[1] / "faults"


def all_harnesses() -> Mapping[str, Harness]:
    """By name, in the order of names."""
    found: dict[str, Harness] = {}
    for module in sorted(path.stem for path in FAULTS.glob("*.py")):
        loaded = importlib.import_module(f"support.faults.{module}")
        single: Harness | None = getattr(loaded, "HARNESS", None)
        several: tuple[Harness, ...] = getattr(loaded, "HARNESSES", ())
        for harness in (*several, *([single] if single is not None else [])):
            assert harness.name not in found, f"two harnesses are called {harness.name}"
            found[harness.name] = harness
    return dict(sorted(found.items()))
