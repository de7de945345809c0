"""`App` and its handlers: what the author of `tasks.py` writes, and what other programs import of it.

    app = App()

    @app.job(queue="mail", attempts_max=5, time_limit_s=30)
    def send_webhook(url: str, body: dict[str, str]) -> int: ...

    send_webhook.enqueue(url, body)                       # arguments checked by the type checker
    send_webhook.using(delay_s=60, id="order-123").enqueue(url, body)
    send_webhook(url, body)                               # a plain call, here and now

The handler's name is its kind. A policy out of range is refused where it is declared, by the name of
its field. Importing a module with handlers connects to nothing; the first `enqueue` does.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from ..proto import limits
from ..proto.rules import POLICY, is_name

if TYPE_CHECKING:
    from typing import Unpack

    from ..client.handle import JobHandle
    from ..client.spec import EnqueueOptions
    from ..client.sync import Client

_GENERATOR = 0x20
_ASYNC = 0x80 | 0x200
"""`CO_GENERATOR`; `CO_COROUTINE` and `CO_ASYNC_GENERATOR`."""

P = ParamSpec("P")
R = TypeVar("R")


class Handler(Generic[P, R]):
    """A function that is also a kind of job. Calling it calls the function."""

    def __init__(self, app: "App", function: Callable[P, R], kind: str, policy: Mapping[str, Any]) -> None:
        self.app = app
        self.function = function
        self.kind = kind
        self.policy = policy
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", kind)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "JobHandle":
        """Store a job with these arguments; it is on disk when this returns."""
        return self.app.client.enqueue(self.kind, args, kwargs)

    def using(self, **options: "Unpack[EnqueueOptions]") -> "Enqueuer[P]":
        """The same, with options for the jobs it enqueues: `delay_s`, `priority`, `id`, `run_at`, ...

        TypeError at once for a name that is no option; values are checked when a job is enqueued.
        """
        from ..client.spec import options_of_a_handler, require_options

        require_options(options, options_of_a_handler())
        return Enqueuer(self, options)

    def __repr__(self) -> str:
        return f"<Handler {self.kind}>"


class Enqueuer(Generic[P]):
    """A handler with options, for one enqueue or many."""

    __slots__ = ("_handler", "_options")

    def __init__(self, handler: Handler[P, Any], options: "EnqueueOptions") -> None:
        self._handler = handler
        self._options = options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "JobHandle":
        """Store a job with these arguments; it is on disk when this returns."""
        handler = self._handler
        return handler.app.client.enqueue(handler.kind, args, kwargs, **self._options)


class App:
    """The handlers of one application, by kind.

    `socket` is where its broker listens, if not in the usual place (see `stoker.Client`).
    """

    def __init__(self, socket: str | None = None) -> None:
        self.handlers: dict[str, Handler[..., Any]] = {}
        self._start_hooks: list[Callable[[], object]] = []
        self._socket = socket
        self._client: Client | None = None

    @property
    def client(self) -> "Client":
        """The client that `enqueue` uses, made when it is first needed; it bears forks and threads."""
        if self._client is None:
            from ..client.sync import Client

            self._client = Client(self._socket)
        return self._client

    @overload
    def job(self, function: Callable[P, R], /) -> Handler[P, R]: ...

    @overload
    def job(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        attempts_max: int | None = None,
        crashes_max: int | None = None,
        time_limit_s: float | None = None,
        lease_s: float | None = None,
        backoff_s: float | None = None,
        backoff_cap_s: float | None = None,
        expires_s: float | None = None,
    ) -> Callable[[Callable[P, R]], Handler[P, R]]: ...

    def job(
        self, function: Callable[..., Any] | None = None, *, name: str | None = None, **policy: Any
    ) -> Any:
        """Make a function a kind of job. What is left out follows the queue, then the defaults.

        `priority`: lower runs first. `time_limit_s` bounds one attempt, `expires_s` the wait for the
        first; `attempts_max` counts failures, `crashes_max` deaths of the worker among them.
        """
        if function is not None:
            return self._add(function, name, policy)

        def decorate(decorated: Callable[..., Any]) -> Handler[..., Any]:
            return self._add(decorated, name, policy)

        return decorate

    def on_start(self, function: Callable[[], R]) -> Callable[[], R]:
        """Decorator: call this in each new worker before its first job, to connect to a database, say.

        What the import of the app connects is closed in workers: two processes must not share it.
        """
        self._start_hooks.append(function)
        return function

    def run_start_hooks(self) -> None:
        """For the worker."""
        for hook in self._start_hooks:
            hook()

    def kinds(self) -> list[dict[str, Any]]:
        """Every kind with what it declares, as a pool tells the broker."""
        return [{"kind": handler.kind, **handler.policy} for handler in self.handlers.values()]

    def _add(
        self, function: Callable[..., Any], name: str | None, policy: dict[str, Any]
    ) -> Handler[..., Any]:
        kind = function.__name__ if name is None else name
        if not is_name(kind):
            raise ValueError(
                f"name: {kind!r} is no kind; it takes 1 to 128 characters of A-Z a-z 0-9 . _ : -"
            )
        if kind in self.handlers:
            raise ValueError(
                f"name: this app has a handler of kind {kind!r} already; give one of them a `name`"
            )
        if len(self.handlers) >= limits.LIST_ITEMS_MAX:
            raise ValueError(f"name: an app has at most {limits.LIST_ITEMS_MAX} kinds")
        _refuse_lazy(function, kind)
        handler = Handler[..., Any](self, function, kind, wire_policy(kind, policy))
        self.handlers[kind] = handler
        return handler


def wire_policy(kind: str, policy: Mapping[str, Any]) -> dict[str, Any]:
    """The declared policy in the wire's words and units; ValueError naming the field that is wrong."""
    fields: dict[str, Any] = {}
    for option, value in policy.items():
        if value is None:
            continue
        field = f"{option[:-2]}_ms" if option.endswith("_s") else option
        if field not in POLICY:
            names = ", ".join(f"{name[:-3]}_s" if name.endswith("_ms") else name for name in POLICY)
            raise TypeError(f"{option!r} is no policy of a job; there are {names}")
        fields[field] = _milliseconds(kind, option, value) if field != option else value
        if not POLICY[field].accepts(fields[field]):
            raise ValueError(f"{kind}: {option}={value!r}: {field} must be {POLICY[field].says}")
    base_ms, cap_ms = fields.get("backoff_ms"), fields.get("backoff_cap_ms")
    if base_ms is not None and cap_ms is not None and cap_ms < base_ms:
        raise ValueError(f"{kind}: backoff_cap_s={policy['backoff_cap_s']!r} is below backoff_s")
    return fields


def _milliseconds(kind: str, option: str, seconds: Any) -> int:
    # The range also refuses NaN and infinities, which compare false.
    if type(seconds) not in (int, float) or not -1e15 < seconds < 1e15:
        raise ValueError(f"{kind}: {option} must be a finite number of seconds, not {seconds!r:.100}")
    milliseconds: int = round(seconds * 1000)
    return milliseconds


def _refuse_lazy(function: Callable[..., Any], kind: str) -> None:
    """Calling one of these runs nothing of it, so its jobs would succeed without having been done."""
    # By the flags of the code: `inspect` would be the largest module that an app loads.
    flags: int = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if flags & _ASYNC:
        raise TypeError(f"{kind}: workers run plain functions; call `trio.run` or `asyncio.run` in one")
    if flags & _GENERATOR:
        raise TypeError(f"{kind}: a generator function does nothing when it is called; use a plain one")
