"""How much memory this process took at most within a block."""

import gc
import re
from pathlib import Path
from typing import Self

_RESET_PEAK = "5"
"""To /proc/self/clear_refs: the peak becomes what it is now."""


class OwnMemory:
    """`grown_bytes` is right after the block."""

    def __enter__(self) -> Self:
        gc.collect()
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
        self._before = _read("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.grown_bytes = _read("VmHWM") - self._before


def _read(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None, name
    return int(found[1]) * 1024
