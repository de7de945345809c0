"""`App` and its handlers: what the author of `tasks.py` writes, and what other programs import of it.

    app = App()

    @app.job(queue="mail", attempts_max=5, time_limit_s=30)
    def send_webhook(url: str, body: dict[str, str]) -> int: ...

    send_webhook.enqueue(url, body)                       # arguments checked by the type checker
    send_webhook.using(delay_s=60, id="order-123").enqueue(url, body)
    await send_webhook.aenqueue(url, body)                # the same under asyncio or Trio
    send_webhook(url, body)                               # a plain call, here and now

The handler's name is its kind. A policy out of range is refused where it is declared, by the name of
its field. Importing a module with handlers connects to nothing; the first `enqueue` does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from ..proto import limits
from ..proto.model import COMMAND
from ..proto.rules import POLICY, is_name
from .confinement import CONFINEMENT_OPTIONS, FREE, Confinement, confinement_of
from .deaths import SUFFIX, DeadJob, handler_of
from .faults import FAULT_OPTIONS, LENIENT, Classes, Faults, faults_of
from .flavour import Flavour
from .hooks import Hooks
from .signature import Fit, fit_of

if TYPE_CHECKING:
    from typing import Unpack

    from ..client.aio import AsyncClient
    from ..client.handle import AsyncJobHandle, JobHandle
    from ..client.spec import EnqueueOptions
    from ..client.sync import Client
    from .context import CurrentJob

_WORKERS_OWN = (*FAULT_OPTIONS, *CONFINEMENT_OPTIONS)
"""Options of a declaration that stay in the worker."""

_COROUTINE = 0x80
_LAZY = 0x20 | 0x200
"""`CO_COROUTINE`; `CO_GENERATOR` and `CO_ASYNC_GENERATOR`."""

P = ParamSpec("P")
R = TypeVar("R")
Around = TypeVar("Around", bound="Callable[[CurrentJob], Iterator[object] | AbstractContextManager[object]]")


class Handler(Generic[P, R]):
    """A function that is also a kind of job. Calling it calls the function."""

    def __init__(
        self,
        app: "App",
        function: Callable[P, R],
        kind: str,
        policy: Mapping[str, Any],
        flavour: Flavour,
        faults: Faults = LENIENT,
        confinement: Confinement = FREE,
    ) -> None:
        self.app = app
        self.memory_max, self.isolate = confinement
        self.faults = faults
        self.flavour = flavour
        self.function = function
        self.kind = kind
        self.policy = policy
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", kind)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @cached_property
    def fits(self) -> Fit:
        """Called with arguments, it raises TypeError if they do not fit the function, which does not run."""
        return fit_of(self.function)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "JobHandle":
        """Store a job with these arguments; it is on disk when this returns. TypeError if they do not fit."""
        self.fits(*args, **kwargs)
        return self.app.client.enqueue(self.kind, args, kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "AsyncJobHandle":
        """The same in a program with an event loop, asyncio or Trio."""
        self.fits(*args, **kwargs)
        return await self.app.async_client.enqueue(self.kind, args, kwargs)

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
        """Store a job with these arguments; it is on disk when this returns. TypeError if they do not fit."""
        handler = self._handler
        handler.fits(*args, **kwargs)
        return handler.app.client.enqueue(handler.kind, args, kwargs, **self._options)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "AsyncJobHandle":
        """The same in a program with an event loop, asyncio or Trio."""
        handler = self._handler
        handler.fits(*args, **kwargs)
        return await handler.app.async_client.enqueue(handler.kind, args, kwargs, **self._options)


class App:
    """The handlers of one application, by kind.

    `socket` is where its broker listens, if not in the usual place (see `stoker.Client`). `name` goes
    before its kinds, so that several apps may share a broker: `shop.send_webhook`. `include` are other
    apps, whose handlers and hooks become this one's in its pool, and names of modules that are imported
    there, because they declare handlers of this app.
    """

    def __init__(
        self, socket: str | None = None, *, name: str | None = None, include: "Sequence[App | str]" = ()
    ) -> None:
        if name is not None and not is_name(name):
            raise ValueError(f"name: {name!r} takes 1 to 128 characters of A-Z a-z 0-9 . _ : -")
        if isinstance(include, str):
            raise TypeError(f"include: a list, as in include=[{include!r}]")
        self.name = name
        self._include = include
        self.handlers: dict[str, Handler[..., Any]] = {}
        self.hooks = Hooks()
        self._socket = socket
        self._client: Client | None = None
        self._async_client: AsyncClient | None = None

    @property
    def client(self) -> "Client":
        """The client that `enqueue` uses, made when it is first needed; it bears forks and threads."""
        if self._client is None:
            from ..client.sync import Client

            self._client = Client(self._socket)
        return self._client

    @property
    def async_client(self) -> "AsyncClient":
        """The client that `aenqueue` uses. Each event loop has a connection of its own, opened by its
        first call and closed when the loop ends."""
        if self._async_client is None:
            from ..client.aio import AsyncClient

            self._async_client = AsyncClient(self._socket)
        return self._async_client

    @overload
    def job(self, function: Callable[P, R], /) -> Handler[P, R]: ...

    @overload
    def job(
        self,
        *,
        name: str | None = None,
        loop: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        attempts_max: int | None = None,
        crashes_max: int | None = None,
        time_limit_s: float | None = None,
        lease_s: float | None = None,
        backoff_s: float | None = None,
        backoff_cap_s: float | None = None,
        expires_s: float | None = None,
        retry_on: Classes | None = None,
        permanent_on: Classes | None = None,
        memory_limit: int | str | None = None,
        isolate: bool = False,
    ) -> Callable[[Callable[P, R]], Handler[P, R]]: ...

    def job(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        loop: str | None = None,
        **policy: Any,
    ) -> Any:
        """Make a function a kind of job. What is left out follows the queue, then the defaults.

        `priority`: lower runs first. `time_limit_s` bounds one attempt, `expires_s` the wait for the
        first; `attempts_max` counts failures, `crashes_max` deaths of the worker among them. `loop`, of a
        coroutine function: `trio`, as by default, or `asyncio` if it needs libraries of that world.
        `retry_on` (exception classes): all others end the job at once. `permanent_on`: these do.
        `memory_limit`: bytes or `"512MiB"`, on top of what the worker has when the job begins. `isolate`:
        each attempt in a process of its own, forked from the worker, in which the start hooks are called.
        """
        if function is not None:
            return self._add(function, self._kind(function, name), loop, policy)

        def decorate(decorated: Callable[..., Any]) -> Handler[..., Any]:
            return self._add(decorated, self._kind(decorated, name), loop, policy)

        return decorate

    def on_start(self, function: Callable[[], R]) -> Callable[[], R]:
        """Decorator: call this in each new worker before its first job, to connect to a database, say.

        What the import of the app connects is closed in workers: two processes must not share it.
        """
        self.hooks.add_start(function)
        return function

    def on_stop(self, function: Callable[[], R]) -> Callable[[], R]:
        """Decorator: call this before a worker ends in order, in a drain or to be replaced.

        Its answers have left by then. It has some seconds; after a SIGKILL it is not called.
        """
        self.hooks.add_stop(function)
        return function

    def around_job(self, function: Around) -> Around:
        """Decorator: run each job in this context: a generator function that yields once and takes the
        `CurrentJob`, or anything that makes a context manager of one. Several nest, the first outermost.
        """
        self.hooks.add_around(function)
        return function

    def on_dead(self, function: Callable[[DeadJob], R]) -> Callable[[DeadJob], R]:
        """Decorator: call this in some worker for each job of this app that became dead, also by crashes.

        At least once, as a job of kind `KIND.on_dead`; if it raises, again with backoff.
        """
        self.hooks.add_dead(function)
        return function

    def gather(self) -> None:
        """For the pool: bring in what is to be included. ValueError if two handlers have one kind."""
        included, self._include = self._include, ()
        for each in included:
            if isinstance(each, str):
                import_module(each)
                continue
            each.gather()
            for kind, handler in each.handlers.items():
                if self.handlers.setdefault(kind, handler) is not handler:
                    raise ValueError(f"include: two apps have a handler of kind {kind!r}; give one a `name`")
            self.hooks.include(each.hooks)

    def add_dead_kinds(self) -> None:
        """For the pool: make the kinds of the notices of deaths, if there are hooks for them."""
        if not self.hooks.has_dead:
            return
        tell = handler_of(self.hooks.dead)
        for handler in list(self.handlers.values()):
            kind = self._add(tell, f"{handler.kind}{SUFFIX}", None, {}).kind
            handler.policy = {**handler.policy, "dead_kind": kind}

    def add_commands(self) -> None:
        """For the pool: make the kind of jobs that are programs. ValueError if the app has one of that name."""
        from .commands.kind import command

        self._add(command, COMMAND, None, {})

    def kinds(self) -> list[dict[str, Any]]:
        """Every kind with what it declares, as a pool tells the broker."""
        return [{"kind": handler.kind, **handler.policy} for handler in self.handlers.values()]

    def flavours(self) -> list[str]:
        """What the handlers run in, each once."""
        return sorted({handler.flavour for handler in self.handlers.values()})

    def _kind(self, function: Callable[..., Any], name: str | None) -> str:
        kind = function.__name__ if name is None else name
        return kind if self.name is None else f"{self.name}.{kind}"

    def _add(
        self, function: Callable[..., Any], kind: str, loop: str | None, policy: dict[str, Any]
    ) -> Handler[..., Any]:
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
        flavour = _flavour(function, kind, loop)
        faults, confinement = faults_of(kind, policy), confinement_of(kind, policy, flavour)
        handler = Handler[..., Any](
            self, function, kind, wire_policy(kind, policy), flavour, faults, confinement
        )
        self.handlers[kind] = handler
        return handler


def wire_policy(kind: str, policy: Mapping[str, Any]) -> dict[str, Any]:
    """The declared policy in the wire's words and units; ValueError naming the field that is wrong."""
    fields: dict[str, Any] = {}
    for option, value in policy.items():
        if value is None or option in _WORKERS_OWN:
            continue
        field = f"{option[:-2]}_ms" if option.endswith("_s") else option
        if field not in POLICY:
            names = [f"{name[:-3]}_s" if name.endswith("_ms") else name for name in POLICY]
            raise TypeError(
                f"{option!r} is no policy of a job; there are {', '.join((*names, *_WORKERS_OWN))}"
            )
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


def _flavour(function: Callable[..., Any], kind: str, loop: str | None) -> Flavour:
    """What a function runs in; TypeError if calling it runs nothing of it, ValueError for a wrong `loop`."""
    # By the flags of the code: `inspect` would be the largest module that an app loads.
    flags: int = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if flags & _LAZY:
        # Its jobs would succeed without having been done.
        raise TypeError(f"{kind}: a generator function does nothing when it is called; use a plain one")
    if not flags & _COROUTINE:
        if loop is not None:
            raise ValueError(f"{kind}: loop={loop!r} is for coroutine functions (`async def`)")
        return Flavour.PLAIN
    if loop not in (None, Flavour.TRIO, Flavour.ASYNCIO):
        raise ValueError(f"{kind}: loop={loop!r} is neither 'trio' nor 'asyncio'")
    return Flavour(loop or Flavour.TRIO)
