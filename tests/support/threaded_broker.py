"""The real broker's code in a thread of the test's process, for clients that block or have their own loop."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import start_blocking_portal
from support.shell import Shell, serving


@contextmanager
def broker_at(path: str, **options: Any) -> Generator[Shell]:
    """A broker whose journal is in memory, with the options of `serving`. Not to be used inside a loop."""
    with (
        start_blocking_portal("trio") as portal,
        portal.wrap_async_context_manager(serving(path, **options)) as shell,
    ):
        yield shell
