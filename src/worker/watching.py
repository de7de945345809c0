"""Watching the files of the app, for `--reload`: load the code anew when one of them changes.

Which files those are the zygote says when it has imported them, or has failed to: then those of the code that
serves are watched beside those that the failure was about. A file counts as changed when its time or its size
does, when it goes, when it comes, and when it is newer than the zygote that imported it.

After a change it waits for a moment without one: whoever saves ten files means one reload.
"""

import os
from collections.abc import Iterable

import trio

from .reloading import Reloading

LOOK_MS = 300
"""Between two looks. A look takes some microseconds a file."""

SETTLE_MS = 200
"""How long nothing may change before it counts as done."""

Mark = tuple[int, int] | None
"""Time of change in ns and size; None for a file that is not there."""


class Files:
    """What the files were like when they were last looked at."""

    def __init__(self) -> None:
        self._marks: dict[str, Mark] = {}

    def changed(self, paths: Iterable[str], since_ns: int) -> list[str]:
        """Those that are not as they were; of those not seen before, the ones changed `since_ns`."""
        return [path for path in paths if self._has_changed(path, since_ns)]

    def _has_changed(self, path: str, since_ns: int) -> bool:
        mark = _mark(path)
        known = path in self._marks
        before, self._marks[path] = self._marks.get(path), mark
        if known:
            return mark != before
        return mark is not None and mark[0] > since_ns


def _mark(path: str) -> Mark:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class Watching:
    """The loop."""

    def __init__(self, reloading: Reloading) -> None:
        self._reloading = reloading
        self._files = Files()

    async def run(self) -> None:
        """For ever."""
        while True:
            await trio.sleep(LOOK_MS / 1000)
            changed = more = await self._look()
            while more:
                await trio.sleep(SETTLE_MS / 1000)
                more = await self._look()
            if changed:
                self._reloading.request(f"{changed[0]} has changed")

    async def _look(self) -> list[str]:
        paths, since_ns = self._reloading.watched()
        return await trio.to_thread.run_sync(self._files.changed, paths, since_ns)
