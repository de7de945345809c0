"""The arrows of `docs/architecture.md`: who may import whom, and what the client's path may load.

Imports are read from the syntax trees, so one that hides in a function or under TYPE_CHECKING
counts too. What a process really loads is asked of a fresh interpreter.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import sources

ARROWS: dict[str, set[str]] = {
    "proto": set(),
    "config": {"proto"},
    "client": {"proto"},
    "broker.core": {"proto"},
    "broker": {"broker.core", "config", "proto"},
    "worker": {"client", "config", "proto"},
    "demo": {"cli", "client", "worker"},
    "doctor": {"broker", "client", "config", "proto"},
    "cli": {"broker", "broker.core", "client", "config", "demo", "doctor", "proto", "worker"},
}
"""Room to the rooms it may import. `""` is the package itself, whose names are lazy."""

PUBLIC: set[str] = {"client", "proto", "worker"}
"""What the package's own `__init__` may offer."""

OUTSIDE: dict[str, set[str]] = {
    "": set(),
    "proto": {"msgpack"},
    "config": {"attrs"},
    "client": {"anyio", "msgpack"},
    "broker.core": {"attrs"},
    "broker": {"apsw", "attrs", "msgpack", "trio"},
    "worker": {"anyio", "attrs", "msgpack", "trio"},
    "demo": {"attrs"},
    "doctor": {"apsw", "msgpack", "trio"},
    "cli": {"click", "msgpack"},
}
"""Room to the packages from outside that it may use."""

CORE_BANNED = {
    *("time", "datetime", "random", "secrets", "os", "io", "pathlib", "logging", "threading"),
    *("socket", "select", "signal", "subprocess", "asyncio", "sqlite3"),
}
"""The core is told the time and everything else; it never asks. (`random` is given to it.)"""

CLIENT_BANNED = {
    *("attr", "attrs", "trio", "apsw", "anyio", "asyncio", "dataclasses", "uuid", "json", "logging", "click"),
    *("stoker.broker", "stoker.worker", "stoker.config", "stoker.cli"),
}

IMPORT_MS_MAX = 30
TRIO_MS = 100
"""What `import trio` takes on a quiet machine of the kind that the limit is meant for."""
IMPORT_ROUNDS = 15


def room(module: str) -> str:
    parts = module.split(".")[1:]
    if parts[:2] == ["broker", "core"]:
        return "broker.core"
    return parts[0] if parts and parts[0] in ARROWS else ""


def rooms_imported(path: Path) -> set[str]:
    named = {name for name in sources.imports(path) if name.split(".")[0] == "stoker"}
    # The package itself offers lazy names of other rooms, so only its version is free for all.
    public = {name for name in named if room(name) == "" and name not in ("stoker", "stoker.__version__")}
    return {room(name) for name in named if room(name)} | ({"public"} if public else set())


@pytest.mark.parametrize("path", sources.modules(), ids=sources.name_of)
def test_imports_follow_the_arrows(path: Path) -> None:
    own = room(sources.name_of(path))
    allowed = PUBLIC if own == "" else ARROWS[own] | {own}
    if own == "demo":
        allowed = allowed | {"public"}  # its handlers are written as a user's would be
    # A package that holds another is named on the way to it.
    way = {"broker"} if own == "broker.core" else set[str]()
    assert rooms_imported(path) - allowed - way == set()


@pytest.mark.parametrize("path", sources.modules(), ids=sources.name_of)
def test_packages_from_outside_are_those_of_the_room(path: Path) -> None:
    roots = {name.split(".")[0] for name in sources.imports(path)}
    outside = {root for root in roots if root not in sys.stdlib_module_names} - {"stoker"}
    assert outside <= OUTSIDE[room(sources.name_of(path))]


@pytest.mark.parametrize("path", sources.modules(sources.SRC / "broker" / "core"), ids=sources.name_of)
def test_core_cannot_reach_the_world(path: Path) -> None:
    roots = {name.split(".")[0] for name in sources.imports(path)}
    assert roots & CORE_BANNED == set()


def loaded_by(statement: str) -> set[str]:
    """Modules that a statement loads in a fresh interpreter, beyond those it starts with."""
    script = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def banned_among(modules: set[str], banned: set[str]) -> set[str]:
    return {name for name in modules if any(name == each or name.startswith(each + ".") for each in banned)}


def test_importing_the_package_loads_no_room() -> None:
    assert {name for name in loaded_by("import stoker") if name.startswith("stoker.")} == set()


def test_client_loads_neither_trio_nor_apsw_nor_the_broker() -> None:
    assert banned_among(loaded_by("import stoker; stoker.Client"), CLIENT_BANNED) == set()


def test_asynchronous_client_loads_neither_trio_nor_the_broker() -> None:
    banned = {"trio", "asyncio", "apsw", "attrs", "stoker.broker", "stoker.worker", "stoker.config"}
    assert banned_among(loaded_by("import stoker; stoker.AsyncClient"), banned) == set()


def test_worker_process_loads_neither_trio_nor_apsw() -> None:
    loaded = loaded_by("import stoker.worker.zygote, stoker.worker.sync_worker")
    assert banned_among(loaded, {"trio", "apsw", "stoker.broker", "stoker.worker.supervisor"}) == set()


def import_times_ms(statements: Sequence[str], cache: Path) -> list[float]:
    """CPU time of each statement in fresh interpreters; of its rounds, the one that was disturbed least.

    The statements take turns, so that what disturbs one for a second disturbs the others too. With
    compiled modules in a `cache` of its own, as on a machine where stoker is installed: here the
    environment may forbid writing them.
    """
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(cache), "PYTHONDONTWRITEBYTECODE": ""}

    def once(statement: str) -> float:
        script = f"from time import process_time as t; a = t(); {statement}; print((t() - a) * 1000)"
        command = [sys.executable, "-c", script]
        return float(subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout)

    _compiles, *rounds = [[once(statement) for statement in statements] for _ in range(1 + IMPORT_ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]


@pytest.mark.slow
def test_client_imports_within_its_time(tmp_path: Path) -> None:
    """Scaled by what trio costs at the same moment, because a shared machine can be several times slower."""
    trio, ours = import_times_ms(("import trio", "import stoker; stoker.Client"), tmp_path)
    assert ours / max(1.0, trio / TRIO_MS) < IMPORT_MS_MAX
