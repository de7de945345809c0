"""The units in `contrib/systemd`: they parse, restart what should be, and let no more through than needed.

No service manager runs here. What its sandbox would forbid is therefore compared with what a broker really
does, call by call.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from support import sources
from support.faults.backlog import BASE_BYTES, BYTES_A_JOB_MAX
from support.stack import START_S, Stack
from support.waiting import wait_until

from stoker.config.exits import NEVER_RESTART, Exit
from stoker.proto import limits
from stoker.proto.errors import StokerError

UNITS = sources.ROOT / "contrib" / "systemd"
BROKER, POOL = UNITS / "stoker-broker.service", UNITS / "stoker-pool.service"

ANALYZES = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
TRACES = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")


def values(unit: Path, key: str) -> list[str]:
    found: list[str] = re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)
    return found


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


# --- what they say ------------------------------------------------------------------------------------------


def test_broker_is_not_restarted_after_ends_that_would_only_be_repeated() -> None:
    (codes,) = values(BROKER, "RestartPreventExitStatus")
    assert {int(code) for code in codes.split()} == NEVER_RESTART
    assert Exit.STORAGE not in NEVER_RESTART


def test_pool_is_restarted_when_its_app_did_not_import() -> None:
    (codes,) = values(POOL, "RestartPreventExitStatus")
    assert {int(code) for code in codes.split()} <= NEVER_RESTART - {Exit.UNAVAILABLE}


@pytest.mark.parametrize("unit", [BROKER, POOL], ids=lambda unit: unit.stem)
def test_restarts_never_end_and_memory_of_one_is_no_end_of_all(unit: Path) -> None:
    wanted = {
        "Restart": ["always"],
        "StartLimitIntervalSec": ["0"],
        "OOMPolicy": ["continue"],
        "UMask": ["0077"],
    }
    assert {key: values(unit, key) for key in wanted} == wanted


def test_pool_gets_time_to_drain_before_it_is_killed() -> None:
    (stop_s,) = values(POOL, "TimeoutStopSec")
    assert int(stop_s) * 1000 > limits.DRAIN_MS_DEFAULT + limits.KILL_GRACE_MS


def test_broker_is_not_killed_for_memory_that_its_own_bounds_let_it_have() -> None:
    (most,) = values(BROKER, "MemoryMax")
    buffers = limits.PAYLOAD_CACHE_BYTES + limits.PARKED_BYTES_MAX + limits.UNREAD_BYTES_MAX
    jobs = BASE_BYTES + BYTES_A_JOB_MAX * limits.LIVE_JOBS_MAX_DEFAULT
    assert most.endswith("G") and int(most[:-1]) * limits.GIB > 1.2 * (buffers + jobs)
    assert values(BROKER, "MemoryHigh") == values(POOL, "MemoryMax") == []


# --- what systemd makes of them -----------------------------------------------------------------------------


@ANALYZES
@pytest.mark.parametrize(("unit", "exposure_max"), [(BROKER, 1.0), (POOL, 4.0)], ids=["broker", "pool"])
def test_exposure_is_small(unit: Path, exposure_max: float) -> None:
    said = analyze("security", "--offline=true", "--no-pager", unit).stdout
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert float(exposure) <= exposure_max


def complaints(directory: Path, more: str = "") -> str:
    """What systemd says of copies whose program is one that is there."""
    copies: list[Path] = []
    for unit in (BROKER, POOL):
        copy = directory / unit.name
        copy.write_text(unit.read_text().replace("/usr/local/bin/stoker", "/bin/true") + more)
        copies.append(copy)
    ran = analyze("verify", "--man=no", *copies)
    return ran.stdout + ran.stderr


@ANALYZES
def test_every_directive_is_understood(tmp_path: Path) -> None:
    assert complaints(tmp_path) == ""


@ANALYZES
def test_directive_that_does_not_exist_would_be_told(tmp_path: Path) -> None:
    assert "Unknown key" in complaints(tmp_path, "WantedBye=nothing\n")


# --- what the sandbox lets through ---------------------------------------------------------------------------


def expanded(name: str) -> frozenset[str]:
    return calls_of(name) if name.startswith("@") else frozenset((name,))


@cache
def calls_of(group: str) -> frozenset[str]:
    """The system calls in a group of systemd's, with those of the groups in it."""
    lines = analyze("syscall-filter", group).stdout.splitlines()[1:]
    names = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    return frozenset[str]().union(*map(expanded, names))


def allowed(filters: Iterable[str]) -> frozenset[str]:
    """What the lines of `SystemCallFilter=` leave."""
    found: frozenset[str] = frozenset()
    for line in filters:
        named = frozenset[str]().union(*map(expanded, line.removeprefix("~").split()))
        found = found - named if line.startswith("~") else found | named
    return found | calls_of("@default")


def answers(stack: Stack) -> bool:
    try:
        return bool(stack.client.status())
    except StokerError:
        return False


def traced(stack: Stack, trace: Path, what: str) -> list[str]:
    """Lines of a trace of a broker that is started, used by a pool, asked for a copy, and ended."""
    command = ["strace", "-f", "-qq", "-e", f"trace={what}", "-o", str(trace), sys.executable]
    arguments = ["-m", "stoker.cli.main", "broker", "--socket", stack.socket, "--data", str(stack.data)]
    with (stack.directory / "broker.log").open("ab") as log:
        stack.broker = subprocess.Popen([*command, *arguments], stderr=log, start_new_session=True)
    wait_until(lambda: answers(stack), "the broker answers", deadline_s=3 * START_S)
    stack.start_pool("results:app", 1)
    stack.client.enqueue("echo", [1]).wait(timeout_s=30)
    stack.client.snapshot("copy")
    # Not the tracer, which would let go of it.
    os.kill(stack.client.status()["pid"], signal.SIGTERM)
    stack.broker.wait(30)
    return trace.read_text().splitlines()


@ANALYZES
@TRACES
@pytest.mark.slow
def test_broker_makes_no_system_call_that_its_unit_forbids(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        lines = traced(stack, short_directory / "trace", "all")
    made = set(
        re.findall(r"^\d+ +(?:<\.\.\. )?([a-z][a-z0-9_]+)(?:\(| resumed)", "\n".join(lines), re.MULTILINE)
    )
    assert {"fdatasync", "epoll_wait", "accept4"} & made
    assert made - allowed(values(BROKER, "SystemCallFilter")) == set()


@TRACES
@pytest.mark.slow
def test_broker_makes_no_memory_both_writable_and_executable(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        lines = traced(stack, short_directory / "trace", "mmap,mprotect,pkey_mprotect")
    assert lines
    both = [line for line in lines if "PROT_WRITE|PROT_EXEC" in line]
    made_executable = [line for line in lines if "mprotect(" in line and "PROT_EXEC" in line]
    assert (both, made_executable) == ([], [])
