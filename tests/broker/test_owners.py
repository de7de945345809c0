"""Lease holders after a restart: what proves one dead, and what does not."""

import os
from pathlib import Path

import pytest

from stoker.broker.clock import boot_id
from stoker.broker.owners import Owners, exists, pid_namespace

BOOT, NAMESPACE = "boot-1", 4026531836


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with one process, 42, started at tick 777, whose name tries to confuse."""
    (tmp_path / "42").mkdir()
    write_stat(tmp_path, 42, "S", 777)
    return tmp_path


def write_stat(proc: Path, pid: int, state: str, start_ticks: int) -> None:
    fields = " ".join(["0"] * 18)
    (proc / str(pid) / "stat").write_text(f"{pid} (a) Z (b) {state} {fields} {start_ticks} 0 0")


def is_dead(proc: Path, worker: str, *in_use: int) -> bool:
    owners = Owners(boot=BOOT, namespace=NAMESPACE, proc=str(proc), exists=lambda pid: pid in in_use)
    return owners.is_proved_dead(worker)


def test_living_process_is_not_dead(proc: Path) -> None:
    assert not is_dead(proc, f"{BOOT}/{NAMESPACE}/42/777/nonce")


@pytest.mark.parametrize(
    "worker",
    [
        f"another-boot/{NAMESPACE}/42/777/nonce",
        f"{BOOT}/{NAMESPACE}/43/777/nonce",
        f"{BOOT}/{NAMESPACE}/42/778/nonce",
    ],
    ids=["other boot", "no such pid", "pid used again"],
)
def test_dead_owner_is_proved_dead(proc: Path, worker: str) -> None:
    assert is_dead(proc, worker)


@pytest.mark.parametrize(("boot", "is_other"), [(BOOT, False), ("another-boot", True)])
def test_owner_of_another_boot_is_known_by_that(boot: str, is_other: bool) -> None:
    assert Owners(boot=BOOT).is_of_another_boot(f"{boot}/{NAMESPACE}/42/777/nonce") is is_other


def test_process_that_proc_hides_is_not_dead(proc: Path) -> None:
    assert not is_dead(proc, f"{BOOT}/{NAMESPACE}/43/777/nonce", 43)


def test_number_in_use_is_known_also_of_processes_of_others() -> None:
    assert exists(os.getpid()) and exists(1)
    assert not exists(2**22 + 1)


def test_zombie_is_dead(proc: Path) -> None:
    write_stat(proc, 42, "Z", 777)
    assert is_dead(proc, f"{BOOT}/{NAMESPACE}/42/777/nonce")


@pytest.mark.parametrize(
    "worker",
    [f"{BOOT}/1/43/777/nonce", "connection/3/17", "", f"{BOOT}/x/43/777/n", f"{BOOT}/{NAMESPACE}/0/1/n"],
    ids=["other namespace", "raw connection", "empty", "not a number", "pid 0"],
)
def test_what_cannot_be_looked_up_is_no_proof(proc: Path, worker: str) -> None:
    assert not is_dead(proc, worker)


def test_this_very_process_lives() -> None:
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    worker = f"{boot_id()}/{pid_namespace()}/{os.getpid()}/{stat[19]}/nonce"
    assert not Owners().is_proved_dead(worker)
