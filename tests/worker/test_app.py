"""`App`: kinds and their policies, and a typed way to enqueue them."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, assert_type

import pytest

from stoker import App, Handler, JobHandle
from stoker.proto import limits, ops, work


class RecordingClient:
    """Takes the place of the client."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any, dict[str, Any]]] = []

    def enqueue(self, kind: str, args: Any, kwargs: Any, **options: Any) -> None:
        self.calls.append((kind, args, kwargs, options))


@pytest.fixture
def client() -> RecordingClient:
    return RecordingClient()


@pytest.fixture
def app(client: RecordingClient, monkeypatch: pytest.MonkeyPatch) -> App:
    app = App()
    monkeypatch.setattr(app, "_client", client)
    return app


def declare(app: App, **policy: Any) -> None:
    def handler() -> None: ...

    app.job(**policy)(handler)


def test_kind_is_the_name_of_the_function(app: App) -> None:
    @app.job
    def send_mail() -> None: ...

    assert list(app.handlers) == ["send_mail"]
    assert repr(send_mail) == "<Handler send_mail>"


def test_name_replaces_the_name_of_the_function(app: App) -> None:
    declare(app, name="mail.send")
    assert app.kinds() == [{"kind": "mail.send"}]


def test_calling_a_handler_runs_the_function_here(app: App, client: RecordingClient) -> None:
    @app.job
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    assert add(1, b=5) == 6
    assert add.__doc__ == "Adds."
    assert client.calls == []


def test_types_of_the_function_are_those_of_the_handler(app: App) -> None:
    @app.job(queue="mail")
    def send(url: str, body: dict[str, str]) -> int:
        return len(url) + len(body)

    @app.job
    def bare(text: str) -> str:
        return text

    assert_type(send("u", {}), int)
    assert_type(bare("x"), str)
    enqueue: Callable[[str, dict[str, str]], JobHandle] = send.enqueue
    delayed: Callable[[str, dict[str, str]], JobHandle] = send.using(delay_s=1).enqueue
    assert callable(enqueue) and callable(delayed)
    assert isinstance(send, Handler)


def test_enqueue_passes_kind_and_arguments_on(app: App, client: RecordingClient) -> None:
    @app.job
    def add(a: int, b: int) -> int:
        return a + b

    add.enqueue(1, b=2)
    assert client.calls == [("add", (1,), {"b": 2}, {})]


def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent(
    app: App, client: RecordingClient
) -> None:
    @app.job
    def send(url: str, body: dict[str, str], *, verbose: bool = False) -> None: ...

    wrong: Any = send
    with pytest.raises(TypeError, match=r"send\(\) missing 1 required positional argument: 'body'"):
        wrong.enqueue("u")
    with pytest.raises(TypeError, match="unexpected keyword argument 'loud'"):
        wrong.using(delay_s=1).enqueue("u", {}, loud=True)
    send.enqueue("u", body={}, verbose=True)
    assert len(client.calls) == 1


def test_arguments_may_be_called_as_the_options_of_the_check_are(app: App, client: RecordingClient) -> None:
    @app.job
    def odd(self: int, function: int, kind: int) -> None: ...

    odd.enqueue(1, function=2, kind=3)
    assert len(client.calls) == 1


def test_using_refuses_at_once_what_is_no_option(app: App) -> None:
    @app.job
    def nothing() -> None: ...

    using: Any = nothing.using
    with pytest.raises(TypeError, match=r"'frob' is no option here; there are id, queue"):
        using(frob=1)
    with pytest.raises(TypeError, match="'payload' is no option here"):
        using(payload=b"x")
    with pytest.raises(TypeError, match="'retry_on' is no option here"):
        using(retry_on=ValueError)


def test_using_adds_options_and_leaves_the_handler_as_it_was(app: App, client: RecordingClient) -> None:
    @app.job
    def add(a: int) -> int:
        return a

    urgent = add.using(priority=-5, delay_s=60, id="order-1")
    urgent.enqueue(1)
    add.enqueue(2)
    assert [call[3] for call in client.calls] == [{"priority": -5, "delay_s": 60, "id": "order-1"}, {}]


def test_policy_travels_in_the_words_of_the_wire(app: App) -> None:
    declare(
        app, queue="mail", priority=3, attempts_max=5, crashes_max=2, time_limit_s=30, lease_s=2.5,
        backoff_s=0.5, backoff_cap_s=60, expires_s=3600,
    )  # fmt: skip
    assert app.kinds() == [
        {
            "kind": "handler", "queue": "mail", "priority": 3, "attempts_max": 5, "crashes_max": 2,
            "time_limit_ms": 30_000, "lease_ms": 2500, "backoff_ms": 500, "backoff_cap_ms": 60_000,
            "expires_ms": 3_600_000,
        }
    ]  # fmt: skip


def test_kinds_are_what_a_pool_may_send(app: App) -> None:
    declare(app, queue="mail", time_limit_s=30)
    fields = [1, "pool", b"t" * limits.TICKET_BYTES, ["boot-id-1", 1, 2, 3, "nonce-12"], app.kinds(), []]
    ops.build(ops.BY_MESSAGE[work.Pool], fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue", "a b"),
        ("queue", "x" * 129),
        ("priority", limits.PRIORITY_MAX + 1),
        ("priority", 1.5),
        ("attempts_max", 0),
        ("attempts_max", True),
        ("crashes_max", -1),
        ("time_limit_s", 0),
        ("time_limit_s", -1),
        ("time_limit_s", float("nan")),
        ("time_limit_s", float("inf")),
        ("time_limit_s", "30"),
        ("lease_s", 0.01),
        ("lease_s", 10**9),
        ("backoff_s", 0),
        ("backoff_s", float("nan")),
        ("backoff_cap_s", 10**12),
        ("expires_s", -5),
        ("retry_on", "ValueError"),
        ("retry_on", [ValueError]),
        ("retry_on", (ValueError, int)),
        ("permanent_on", ValueError()),
    ],
)
def test_bad_policy_is_refused_where_it_is_declared_by_its_name(app: App, field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        declare(app, **{field: value})
    assert app.kinds() == []


def test_classes_of_exceptions_stay_in_the_worker(app: App) -> None:
    declare(app, retry_on=(OSError, LookupError), permanent_on=FileNotFoundError)
    assert app.kinds() == [{"kind": "handler"}]
    faults = app.handlers["handler"].faults
    errors = (OSError(), KeyError(), FileNotFoundError(), ValueError())
    assert [faults.is_permanent(error) for error in errors] == [False, False, True, True]


def test_cap_below_its_base_is_refused(app: App) -> None:
    with pytest.raises(ValueError, match="backoff_cap_s"):
        declare(app, backoff_s=10, backoff_cap_s=5)


def test_unknown_policy_is_refused(app: App) -> None:
    with pytest.raises(TypeError, match="colour"):
        declare(app, colour="red")


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "é"])
def test_name_that_is_no_kind_is_refused(app: App, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        declare(app, name=name)


def test_two_handlers_of_one_kind_are_refused(app: App) -> None:
    declare(app)
    with pytest.raises(ValueError, match="handler of kind 'handler' already"):
        declare(app)


def test_more_kinds_than_a_pool_can_declare_are_refused(app: App) -> None:
    for number in range(limits.LIST_ITEMS_MAX):
        declare(app, name=f"kind-{number}")
    with pytest.raises(ValueError, match="at most"):
        declare(app, name="one-more")


def test_functions_that_do_nothing_when_called_are_refused(app: App) -> None:
    async def asynchronous() -> AsyncIterator[int]:
        yield 1

    def generator() -> Iterator[int]:
        yield 1

    for lazy in (asynchronous, generator):
        with pytest.raises(TypeError, match=lazy.__name__):
            app.job(lazy)


def test_start_hooks_run_in_order(app: App) -> None:
    ran: list[int] = []

    @app.on_start
    def first() -> None:
        ran.append(1)

    @app.on_start
    def second() -> None:
        ran.append(2)

    app.hooks.start()
    first()
    assert callable(second)
    assert ran == [1, 2, 1]


def test_declaring_handlers_connects_to_nothing() -> None:
    app = App(socket="/nowhere/at/all.sock")
    declare(app)
    assert app.client.socket == "/nowhere/at/all.sock"


def test_flavour_of_a_kind_is_that_of_its_function(app: App) -> None:
    async def coroutine() -> None: ...

    def plain() -> None: ...

    assert app.flavours() == []
    handlers: list[Handler[..., object]] = [
        app.job(coroutine),
        app.job(name="b", loop="asyncio")(coroutine),
        app.job(name="c", loop="trio")(coroutine),
        app.job(plain),
    ]
    assert [handler.flavour for handler in handlers] == ["trio", "asyncio", "trio", "plain"]
    assert app.flavours() == ["asyncio", "plain", "trio"]


def test_loop_is_for_coroutines_and_there_are_two(app: App) -> None:
    async def coroutine() -> None: ...

    def plain() -> None: ...

    with pytest.raises(ValueError, match="plain: loop='trio' is for coroutine functions"):
        app.job(loop="trio")(plain)
    with pytest.raises(ValueError, match="coroutine: loop='twisted' is neither 'trio' nor 'asyncio'"):
        app.job(loop="twisted")(coroutine)


# --- several modules, several apps ------------------------------------------------------------------------


def test_name_of_the_app_goes_before_its_kinds() -> None:
    shop = App(name="shop")

    @shop.job
    def send() -> None: ...

    @shop.job(name="other")
    def receive() -> None: ...

    assert (send.kind, receive.kind) == ("shop.send", "shop.other")
    assert list(shop.handlers) == ["shop.send", "shop.other"]


@pytest.mark.parametrize("name", ["", "a b", "x" * 129])
def test_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        App(name=name)


def test_included_app_brings_its_handlers_and_hooks() -> None:
    called: list[str] = []
    mail = App(name="mail")
    mail.on_start(lambda: called.append("mail"))
    mail.job(name="send")(lambda: None)
    shop = App(include=[mail])
    shop.on_start(lambda: called.append("shop"))
    shop.job(name="buy")(lambda: None)
    shop.gather()
    shop.gather()
    shop.hooks.start()
    assert (list(shop.handlers), called) == (["buy", "mail.send"], ["shop", "mail"])


def test_included_kind_that_is_there_already_is_refused() -> None:
    first, second = App(), App()
    first.job(name="send")(lambda: None)
    second.job(name="send")(lambda: None)
    with pytest.raises(ValueError, match="two apps have a handler of kind 'send'"):
        App(include=[first, second]).gather()


def test_included_module_is_imported_by_the_pool_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "more_handlers.py").write_text("imported = True")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    app = App(include=["more_handlers"])
    assert "more_handlers" not in sys.modules
    app.gather()
    assert sys.modules.pop("more_handlers").imported


def test_single_name_is_no_list_of_modules() -> None:
    with pytest.raises(TypeError, match="include=\\['tasks'\\]"):
        App(include="tasks")
