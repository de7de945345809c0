"""A file system of its own for a test that fills it. Only root may mount one; others see the test skipped."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

MOUNTING = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")


@contextmanager
def small_disk(place: Path, size: str) -> Generator[Path]:
    """One of that size, as `mount` writes it, at `place`, which is made; gone at the end."""
    place.mkdir(mode=0o700)
    options = f"size={size},mode=0700"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("this root may not mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
