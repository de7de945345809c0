"""The core against a naive model, as a state machine of Hypothesis: any sequence of requests, deaths,
waits and restarts.

After each step every job is shown by the core and compared with the model, field by field; answers
must be the same, every hand-out must have been allowed, and no worker idles beside work it could do.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.lockstep import Lockstep
from support.model import SUPERVISOR_GRACE_MS, Model, ModelJob, ModelWorker

from stoker.broker.core import events as ev
from stoker.broker.core.rules import Rules
from stoker.broker.core.workers import identity_text
from stoker.proto import limits, messages, work
from stoker.proto.model import Overflow
from stoker.proto.queuerules import QueueRules

RULES = Rules(
    queues={
        "small": QueueRules(jobs_max=3),
        "spill": QueueRules(jobs_max=2, overflow=Overflow.DEAD, dead_max=2),
    },
    # No heartbeat is asked for so often that a lease of the model would begin longer than it is.
    heartbeat_ms_max=1000,
)
TICKET = bytes(15) + b"\1"
KINDS = ("a", "b")
WORKERS: dict[str, tuple[tuple[str, ...], int, bool]] = {
    "raw-1": (("a",), 1, False),
    "raw-2": (("a", "b"), 2, False),
    "sup-1": (("a", "b"), 1, True),
    "sup-2": (("b",), 1, True),
}
CHOICES = st.integers(0, 1000)
"""Which of those that there are: of jobs, of workers, of tokens."""

NAMES = st.sampled_from(sorted(WORKERS))
QUEUES = st.sampled_from(["small", "spill", "wide"])
PHASES = st.sampled_from(["running", "unstarted", "absent"])
COMPARED = ("state", "kind", "queue", "priority", "position", "attempt", "charged", "crashes", "releases")


class CoreAgainstModel(RuleBasedStateMachine):
    """See the module. Workers are named by slot and incarnation: `raw-1.3`."""

    model_class = Model
    begun = 0
    """How many sequences of steps were begun."""

    @initialize(random=st.randoms(use_true_random=False))
    def begin(self, random: Any) -> None:
        type(self).begun += 1
        self.broker = Lockstep(RULES, random.random)
        self.model = self.model_class({"small": 3, "spill": 2}, dead_max=2)
        self.incarnations = dict.fromkeys(WORKERS, 0)
        self.connections: dict[str, int] = {}
        self.born = 0
        self.past: list[tuple[int, int]] = [(1, 10_000)]
        """Tokens that were handed out, and one that never was."""
        self.ready_before: set[str] = set()
        self.client = self.broker.connect()
        self._connect_pool()
        for slot in WORKERS:
            self._say_hello(slot, {})

    def _connect_pool(self) -> None:
        self.pool = self.broker.connect()
        kinds = [{"kind": kind} for kind in KINDS]
        identity = ["boot-1", 1, 99, 99, "supervisor"]
        alive = [
            self._identity(self.name(slot))[4] for slot, (_, _, supervised) in WORKERS.items() if supervised
        ]
        self.broker.ask(self.pool, work.Pool(limits.PROTOCOL_VERSION, "pool", TICKET, identity, kinds, alive))

    # --- helpers ------------------------------------------------------------------------------------------

    @property
    def now(self) -> ev.Now:
        return self.broker.clock.now()

    def name(self, slot: str) -> str:
        """The present incarnation of a worker."""
        return f"{slot}.{self.incarnations[slot]}"

    def _ready(self) -> set[str]:
        return {job.id for job in self.model.jobs.values() if job.state == "ready"}

    def any_job(self, choice: int, *states: str) -> str:
        """The id of a job, if possible in one of these states; of none there is, if there are none."""
        jobs = list(self.model.jobs.values())
        fitting = [job.id for job in jobs if job.state in states] or [job.id for job in jobs] or ["job-none"]
        return fitting[choice % len(fitting)]

    def ask(self, message: Any, connection: int | None = None) -> Any:
        """A request, and the word for its answer."""
        self.ready_before = self._ready()
        answer = self.broker.ask(self.client if connection is None else connection, message)
        return answer.code if isinstance(answer, messages.Refusal) else answer

    def catch_up(self) -> None:
        """The model looks at the clocks, and is told what the core handed out and how long jobs wait."""
        self.model.look_at_clocks(*self.now)
        pushes, self.broker.pushes = self.broker.pushes, []
        names = {connection: name for name, connection in self.connections.items()}
        for connection, message in pushes:
            if isinstance(message, work.Job):
                token = (message.token[0], message.token[1])
                name = names[connection]
                self.model.granted(message.id, name, token, self.ready_before, self.now.mono_ms)
                self.past.append(token)
        for job in self.model.jobs.values():
            if job.state == "scheduled" and job.waits_for is not None:
                due_in_ms = self.show(job.id)["due_in_ms"]
                assert job.waits_for[0] <= due_in_ms <= job.waits_for[1], (job, due_in_ms)
                job.due, job.waits_for = self.now.boot_ms + due_in_ms, None

    def show(self, id: str) -> Any:
        """A job as the core shows it."""
        answer = self.broker.ask(self.client, messages.Show(id))
        assert isinstance(answer, messages.Shown), answer
        return answer.job

    # --- clients ------------------------------------------------------------------------------------------

    @rule(
        again=st.lists(CHOICES, min_size=1, max_size=3),
        body=st.sampled_from([b"one", b"two"]),
        kind=st.sampled_from(KINDS),
        queue=QUEUES,
        priority=st.sampled_from([None, -1, 3]),
        wait=st.sampled_from([{}, {}, {"delay_ms": 4000}, {"date": 3000}, {"date": -5000}]),
        expires_ms=st.sampled_from([None, None, 6000]),
        policy=st.sampled_from(
            [{}, {"attempts_max": 1}, {"attempts_max": 2, "crashes_max": 1}, {"backoff_cap_ms": 7000}]
        ),
        lease_ms=st.sampled_from([None, 8000]),
    )
    def enqueue(self, again: list[int], **said: Any) -> None:
        """Jobs with new ids, or one time in five with one that was used, for this body or another."""
        for choice in again:
            self.born += 1
            used = [*self.model.jobs, *self.model.forgotten]
            id = f"job-{self.born}" if choice % 5 != 4 or not used else used[choice % len(used)]
            self._enqueue(id, **said)

    def _enqueue(self, id: str, body: bytes, kind: str, queue: str, **said: Any) -> None:
        wait, policy = dict(said["wait"]), said["policy"]
        date = self.now.wall_ms + wait.pop("date") if "date" in wait else None
        message = messages.Enqueue(
            id,
            kind,
            body,
            queue=queue,
            priority=said["priority"],
            run_at_ms=date,
            expires_ms=said["expires_ms"],
            lease_ms=said["lease_ms"],
            **wait,
            **policy,
        )
        answer = self.ask(message)
        expected = self.model.enqueue(self._job(message, policy))
        if expected in ("stored", "same"):
            known = self.model.jobs.get(id) or self.model.forgotten[id]
            assert answer.id == id and (expected == "same" or answer.number == known.position)
        else:
            assert answer == expected
        self.catch_up()

    def _job(self, message: messages.Enqueue, policy: dict[str, int]) -> ModelJob:
        now, date, delay_ms = self.now, message.run_at_ms, message.delay_ms
        waits = bool(delay_ms) or (date is not None and date > now.wall_ms)
        return ModelJob(
            id=message.id,
            body=tuple(message),
            kind=message.kind,
            queue=message.queue or "",
            priority=message.priority or 0,
            position=0,
            state="scheduled" if waits else "ready",
            due=now.boot_ms + delay_ms if delay_ms else None,
            date=date if waits else None,
            expires=now.boot_ms + message.expires_ms if message.expires_ms else None,
            expires_ms=message.expires_ms,
            lease_ms=message.lease_ms or limits.LEASE_MS_DEFAULT,
            attempts_max=policy.get("attempts_max", limits.ATTEMPTS_MAX_DEFAULT),
            crashes_max=policy.get("crashes_max", limits.CRASHES_MAX_DEFAULT),
            backoff_cap_ms=policy.get("backoff_cap_ms", limits.BACKOFF_CAP_MS_DEFAULT),
        )

    @rule(choice=CHOICES)
    def cancel(self, choice: int) -> None:
        id = self.any_job(choice, "leased", "ready")
        answer = self.ask(messages.Cancel(id))
        expected = self.model.cancel(id, self.now.mono_ms)
        assert expected == (answer if isinstance(answer, str) else answer.state)
        self.catch_up()

    @rule(choice=CHOICES)
    def kick(self, choice: int) -> None:
        id = self.any_job(choice, "dead")
        answer = self.ask(messages.Kick(id))
        expected = self.model.kick(id, self.now.boot_ms)
        assert expected == (answer if isinstance(answer, str) else "kicked")
        self.catch_up()

    @rule(choice=CHOICES)
    def drop(self, choice: int) -> None:
        id = self.any_job(choice, "done", "dead")
        answer = self.ask(messages.Drop(id))
        assert self.model.drop(id) == (answer if isinstance(answer, str) else "dropped")
        self.catch_up()

    @rule(queue=st.one_of(st.none(), QUEUES), drains=st.booleans(), soon=st.booleans())
    def hold_back(self, queue: str | None, drains: bool, soon: bool) -> None:
        """Pause or drain, and mostly end that soon: what is held back for ever shows little."""
        if drains:
            answer = self.ask(messages.Drain())
            self.model.draining = True
            leased = [job for job in self.model.jobs.values() if job.state == "leased"]
            assert answer == (None if leased else messages.Drained(0))
        else:
            self.ask(messages.Pause(queue))
            self.model.paused.add(queue or "")
        self.catch_up()
        if soon:
            self.resume(queue)

    @rule(queue=st.one_of(st.none(), QUEUES))
    def resume(self, queue: str | None) -> None:
        self.ask(messages.Resume(queue))
        self.model.paused.discard(queue or "")
        self.model.draining = self.model.draining and queue is not None
        self.catch_up()

    # --- workers ------------------------------------------------------------------------------------------

    @rule(slot=NAMES, phases=st.lists(PHASES, min_size=2, max_size=2))
    def hello(self, slot: str, phases: list[str]) -> None:
        """A worker comes, or comes back over a new connection, with some of what it holds."""
        held = zip(self.model.held_by(self.name(slot)), phases, strict=False)
        self._say_hello(slot, {job.token: phase for job, phase in held if job.token and phase != "absent"})

    def _say_hello(self, slot: str, held: dict[tuple[int, int], str]) -> None:
        name, (kinds, slots, supervised) = self.name(slot), WORKERS[slot]
        connection = self.broker.connect(pid=self._identity(name)[2])
        older = self.connections.get(name)
        self.connections[name] = connection
        lists = [[*token, phase] for token, phase in held.items()]
        ticket = TICKET if supervised else b""
        hello = messages.Hello(1, "work", name, self._identity(name), ticket, kinds, slots, lists)
        welcome = self.ask(hello, connection)
        assert welcome.lost == []
        if older is not None:
            self.broker.event(ev.Disconnected(older))
        worker = self.model.workers.get(name) or ModelWorker(name, kinds, slots, supervised)
        self.model.joined(worker, held, self.now.mono_ms)
        self.catch_up()

    @staticmethod
    def _identity(name: str) -> list[Any]:
        slot, _, incarnation = name.partition(".")
        pid = 1000 * (1 + sorted(WORKERS).index(slot)) + int(incarnation)
        return ["boot-1", 1, pid, pid, f"nonce-{pid}"]

    @rule(choice=CHOICES)
    def disconnect(self, choice: int) -> None:
        name = self._any_worker(choice)
        if name is not None:
            self.ready_before = self._ready()
            self.broker.event(ev.Disconnected(self.connections.pop(name)))
            self.model.left(name, self.now.mono_ms)
            self.catch_up()

    @rule(
        choice=CHOICES,
        reported=st.sampled_from(["at once", "late", "running", "between jobs"]),
        replaced=st.booleans(),
    )
    def die(self, choice: int, reported: str, replaced: bool) -> None:
        """A worker's process dies; a supervisor reports it before, after, or not yet."""
        name = self._any_worker(choice)
        if name is None:
            return
        slot, connection = name.partition(".")[0], self.connections.pop(name)
        held = self.model.held_by(name)
        self.incarnations[slot] += 1
        self.ready_before = self._ready()
        self.model.died(name, self.now.mono_ms)
        if reported != "late" and WORKERS[slot][2]:
            running = held[0].token if held and reported != "between jobs" else None
            self.model.exited(name, running)
            self._report_exit(name, connection, running, before=reported == "at once")
        else:
            self.broker.event(ev.PeerExited(connection))
        self.broker.event(ev.Disconnected(connection))
        self.catch_up()
        if replaced:
            self._say_hello(slot, {})

    def _report_exit(self, name: str, connection: int, running: Any, *, before: bool) -> None:
        exited = work.Exited(self._identity(name)[4], [list(running)] if running else [], None, 9)
        if before:
            self.broker.ask(self.pool, exited)
        self.broker.event(ev.PeerExited(connection))
        if not before:
            assert self.broker.ask(self.pool, exited) == messages.Done()

    @precondition(lambda self: any(w.report_by is not None for w in self.model.workers.values()))
    @rule()
    def late_report(self) -> None:
        """A supervisor reports a worker that died a while ago."""
        worker = next(w for w in self.model.workers.values() if w.report_by is not None)
        held = self.model.held_by(worker.name)
        running = held[0].token if held else None
        self.ask(
            work.Exited(self._identity(worker.name)[4], [list(running)] if running else [], None, 9),
            self.pool,
        )
        self.model.exited(worker.name, running)
        self.catch_up()

    def _any_token(self, name: str, choice: int) -> tuple[int, int]:
        """Mostly a token that the worker holds, else any that ever was."""
        tokens = [job.token for job in self.model.held_by(name) if job.token is not None]
        if tokens and choice % 8 != 7:
            return tokens[choice % len(tokens)]
        return self.past[choice % len(self.past)]

    def _any_worker(self, choice: int) -> str | None:
        """A connected worker, if possible one that holds something."""
        busy = [name for name in self.connections if self.model.held_by(name)]
        names = busy or list(self.connections)
        return names[choice % len(names)] if names else None

    @rule(choices=st.lists(CHOICES, min_size=1, max_size=4))
    def ack(self, choices: list[int]) -> None:
        for choice in choices:
            self._report(choice, work.Ack([], b"result"), "ok")

    @rule(
        choice=CHOICES,
        outcome=st.sampled_from(["error", "error", "permanent", "memory"]),
        after_ms=st.sampled_from([None, None, 0, 3000]),
    )
    def nack(self, choice: int, outcome: str, after_ms: int | None) -> None:
        self._report(choice, work.Nack([], outcome, "why", after_ms=after_ms), outcome, after_ms)

    @rule(choice=CHOICES, reason=st.sampled_from(["not_started", "released", "shutdown"]))
    def release(self, choice: int, reason: str) -> None:
        self._report(choice, work.Release([], reason), reason)

    @rule(choice=CHOICES, count=st.integers(9, 11))
    def release_again_and_again(self, choice: int, count: int) -> None:
        """The tenth uncharged end in a row is one too many."""
        for _ in range(count):
            self._report(choice, work.Release([], "released"), "released")

    def _report(self, choice: int, message: Any, outcome: str, after_ms: int | None = None) -> None:
        name = self._any_worker(choice)
        if name is None:
            return
        token = self._any_token(name, choice)
        answer = self.ask(message._replace(token=list(token)), self.connections[name])
        op = type(message).__name__.lower()
        expected = self.model.report(name, token, op, outcome, after_ms)
        assert (answer if isinstance(answer, str) else "done") in expected
        self.catch_up()

    @rule(choice=CHOICES)
    def heartbeat(self, choice: int) -> None:
        name = self._any_worker(choice)
        if name is None:
            return
        token = self._any_token(name, choice)
        wishes = self.ask(work.Heartbeat([list(token)]), self.connections[name])
        self.model.beat(name, [token], self.now.mono_ms)
        lease = self.model.lease(name, token)
        if lease is None or lease.cancelling:
            assert [list(each) for each in wishes.cancel] == [list(token)]
        assert wishes.quiet == self.model.draining
        self.catch_up()

    # --- time and restarts --------------------------------------------------------------------------------

    @rule(passed_ms=st.sampled_from([1, 1000, 2999, 5000, 9999, 20_000]))
    def time_passes(self, passed_ms: int) -> None:
        self.broker.clock.pass_time(passed_ms)
        self.ready_before = self._ready()
        self.broker.event(ev.TimePassed())
        self.catch_up()

    @rule(step_ms=st.sampled_from([-3_600_000, 2000, 3_600_000]))
    def wall_clock_is_set(self, step_ms: int) -> None:
        self.broker.clock.set_wall(step_ms)
        self.time_passes(1)

    @rule(returning=st.lists(NAMES, unique=True))
    def restart(self, returning: list[str]) -> None:
        """The broker dies and comes back, and so do some of its workers, with all that they hold."""
        self.ready_before = self._ready()
        self.broker.restart()
        self.connections.clear()
        self.model.restarted(self.now.mono_ms, self.broker.core.sequence)
        for worker in self.model.workers.values():
            if worker.report_by is not None:
                # The shell looks at /proc and says which owners are dead.
                self.broker.event(ev.OwnerGone(identity_text(self._identity(worker.name))))
                worker.report_by = self.now.mono_ms + SUPERVISOR_GRACE_MS
        self.client = self.broker.connect()
        self._connect_pool()
        self.catch_up()
        for slot in returning:
            held = self.model.held_by(self.name(slot))
            self._say_hello(slot, {job.token: "running" for job in held if job.token})

    # --- what must hold ---------------------------------------------------------------------------------

    @invariant()
    def every_job_is_as_the_model_says(self) -> None:
        for job in self.model.jobs.values():
            shown = self.show(job.id)
            assert {name: shown[name] for name in COMPARED} == {name: getattr(job, name) for name in COMPARED}
            assert shown["cancelling"] == job.cancelling, job
            if job.token is not None and job.attempt:
                assert shown["token"] == list(job.token), job

    @invariant()
    def counts_add_up(self) -> None:
        answer = self.broker.ask(self.client, messages.Status())
        assert isinstance(answer, messages.StatusReport)
        for name, queue in answer.status["queues"].items():
            jobs = [job for job in self.model.jobs.values() if job.queue == name]
            for state in ("scheduled", "ready", "leased", "done", "dead", "cancelled"):
                assert queue[state] == sum(job.state == state for job in jobs), (name, state)

    @invariant()
    def nobody_idles_beside_work(self) -> None:
        for worker in self.model.workers.values():
            if self.model.has_room(worker):
                assert not self.model.runnable(worker), worker.name
