"""`memory_limit` and `isolate` where they are declared."""

from typing import Any

import pytest

from stoker import App
from stoker.proto import limits


def declare(app: App, **options: Any) -> None:
    def handler() -> None: ...

    app.job(**options)(handler)


@pytest.mark.parametrize("limit", ["512MiB", 512 * limits.MIB])
def test_limit_is_bytes_or_a_size_and_stays_in_the_worker(limit: Any) -> None:
    app = App()
    declare(app, memory_limit=limit, isolate=True)
    handler = app.handlers["handler"]
    assert (handler.memory_max, handler.isolate) == (512 * limits.MIB, True)
    assert app.kinds() == [{"kind": "handler"}]


def test_neither_is_said_by_default() -> None:
    app = App()
    declare(app)
    handler = app.handlers["handler"]
    assert (handler.memory_max, handler.isolate) == (0, False)


@pytest.mark.parametrize("limit", ["512", 1, 0, -1, "1KiB", "lots", "", 5.0, True, 2**54, b"1MiB", "9" * 400])
def test_limit_out_of_range_is_refused_by_name(limit: Any) -> None:
    with pytest.raises(ValueError, match=r"^handler: memory_limit ") as caught:
        declare(App(), memory_limit=limit)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("isolate", [1, "yes", 0])
def test_isolate_is_true_or_false(isolate: Any) -> None:
    with pytest.raises(ValueError, match=r"^handler: isolate must be True or False"):
        declare(App(), isolate=isolate)


@pytest.mark.parametrize("options", [{"memory_limit": "1GiB"}, {"isolate": True}])
def test_coroutines_have_neither(options: dict[str, Any]) -> None:
    app = App()

    async def fetch() -> None: ...

    with pytest.raises(ValueError, match="plain functions"):
        app.job(**options)(fetch)
    app.job(isolate=False)(fetch)
