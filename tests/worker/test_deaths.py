"""`on_dead`: the kinds it adds, and what its hooks get."""

from typing import Any

import pytest

from stoker import App, DeadJob

KNOWN: dict[str, Any] = {
    "id": "a",
    "kind": "send",
    "queue": "mail",
    "attempt": 3,
    "outcome": "crash",
    "reason": "crashed",
    "headers": {},
    "created_at_ms": 1,
    "finished_at_ms": 2,
}


def app_with(hook: Any, kind: str = "send") -> App:
    app = App()
    app.on_dead(hook)

    @app.job(name=kind, queue="mail")
    def send() -> None: ...

    app.add_dead_kinds()
    return app


def test_each_kind_declares_the_one_that_is_told() -> None:
    assert app_with(print).kinds() == [
        {"kind": "send", "queue": "mail", "dead_kind": "send.on_dead"},
        {"kind": "send.on_dead"},
    ]


def test_without_hooks_nothing_is_added() -> None:
    app = App()

    @app.job
    def send() -> None: ...

    app.add_dead_kinds()
    assert app.kinds() == [{"kind": "send"}]
    assert callable(send)


def test_hook_gets_what_is_known_also_if_a_later_broker_knows_more() -> None:
    seen: list[DeadJob] = []
    app_with(seen.append).handlers["send.on_dead"](KNOWN | {"colour": "blue"})
    assert seen == [DeadJob(**KNOWN)]


def test_hook_that_raises_is_named() -> None:
    def hook(job: DeadJob) -> None:
        raise LookupError("no mail")

    with pytest.raises(LookupError) as caught:
        app_with(hook).handlers["send.on_dead"](KNOWN)
    assert "on_dead hook" in caught.value.__notes__[0]


def test_kind_without_room_for_the_name_of_the_other_is_refused() -> None:
    with pytest.raises(ValueError, match="on_dead"):
        app_with(print, "k" * 125)


def test_coroutines_are_refused() -> None:
    async def hook(job: DeadJob) -> None: ...

    with pytest.raises(TypeError, match="does nothing when it is called"):
        App().on_dead(hook)
