"""A simulated supervisor: keeps workers running, beats for them, kills on demand, reports exits.

A dead worker's tree lives on until it is swept, and only then is its exit reported: a core that
does not wait for the report starts a job beside itself. If the supervisor dies, its workers follow
within two seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stoker.broker.core.workers import identity_text
from stoker.proto import limits, messages, work
from stoker.proto.messages import Message

from .broker import Broker
from .heap import BOOT_ID
from .host import Host, Process
from .wire import Line
from .worker import Key, SimWorker

SWEEP_MS_MAX = 600
RECONNECT_MS_MAX = 800
RESPAWN_MS_MAX = 500


class SimSupervisor:
    """See the module. Each has a ticket of its own; a later one is another pool member, not the same."""

    def __init__(
        self,
        host: Host,
        broker: Broker,
        name: str,
        ticket: bytes,
        kinds: Sequence[Mapping[str, Any]],
        worker_count: int,
    ) -> None:
        self._host = host
        self._broker = broker
        self.process = Process(host, name)
        self.ticket, self._kinds = ticket, kinds
        self.workers: list[SimWorker] = []
        self._reports: dict[str, work.Exited] = {}
        """Exits that the broker has not confirmed."""
        self._kills: dict[str, Key] = {}
        self._wire: Line | None = None
        self._heartbeat_ms = 0
        self._born = 0
        self.identity = [BOOT_ID, 1, self.process.pid, self.process.pid, "supervisor"]
        broker.knows(identity_text(self.identity), self.process)
        self.process.on_death(self._died)
        self._connect()
        for _ in range(worker_count):
            self._spawn()

    # --- workers --------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        self._born += 1
        names = [str(kind["kind"]) for kind in self._kinds]
        name = f"{self.process.name}.{self._born}"
        worker = SimWorker(self._host, self._broker, name, names, ticket=self.ticket)
        self.workers.append(worker)
        worker.process.on_death(lambda: self._worker_died(worker))

    def _worker_died(self, worker: SimWorker) -> None:
        if self.process.alive:
            self.process.after(self._host.heap.between(0, SWEEP_MS_MAX), lambda: self._swept(worker))
        else:
            worker.tree_gone()

    def _swept(self, worker: SimWorker) -> None:
        tokens = worker.begun()
        self.workers.remove(worker)
        worker.tree_gone()
        kill = self._kills.pop(worker.nonce, None)
        kill_token = None if kill is None else list(kill)
        report = work.Exited(worker.nonce, tokens, None, 9, kill_token)
        self._reports[worker.nonce] = report
        self._send(report)
        self.process.after(self._host.heap.between(0, RESPAWN_MS_MAX), self._spawn)

    def _died(self) -> None:
        for worker in self.workers:
            if worker.process.alive:
                last_ms = self._host.heap.between(0, limits.SUPERVISOR_DEATH_MS)
                self._host.heap.after(last_ms, worker.process.die)
            else:
                worker.tree_gone()

    # --- the connection -------------------------------------------------------------------------------------

    def _connect(self) -> None:
        wire = self._broker.accept(self)
        if wire is None:
            self.process.after(self._host.heap.between(0, RECONNECT_MS_MAX), self._connect)
            return
        self._wire = wire
        living = [worker.nonce for worker in self.workers if worker.process.alive]
        wire.send(
            work.Pool(
                limits.PROTOCOL_VERSION, self.process.name, self.ticket, self.identity, self._kinds, living
            )
        )

    def cut(self) -> None:
        """The connection breaks."""
        if self._wire is not None:
            self._wire.close()
            self.cut_off()

    def cut_off(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
            self.process.after(self._host.heap.between(0, RECONNECT_MS_MAX), self._connect)

    def replied(self, asked: Message, answer: Message) -> None:
        if isinstance(answer, messages.Welcome):
            self._heartbeat_ms = answer.heartbeat_ms
            for report in self._reports.values():
                self._send(report)
            self._beat(self._wire)
        elif isinstance(answer, work.Wishes):
            self._heartbeat_ms = answer.heartbeat_ms
        elif isinstance(asked, work.Exited) and isinstance(answer, messages.Done):
            self._reports.pop(asked.worker, None)

    def _beat(self, wire: Line | None) -> None:
        """A stopped process is not alive in the sense of a heartbeat."""
        if wire is not None and wire is self._wire:
            beating = [w.nonce for w in self.workers if w.process.alive and not w.process.stopped]
            wire.send(work.Heartbeat(workers=beating))
            self.process.after(self._heartbeat_ms, lambda: self._beat(wire))

    def _send(self, message: Message) -> None:
        if self._wire is not None:
            self._wire.send(message)

    # --- kills ----------------------------------------------------------------------------------------------

    def pushed(self, message: Message) -> None:
        if isinstance(message, work.Recall):
            self.process.after(self._host.heap.between(0, 30), lambda: self._recall(message))
            return
        assert isinstance(message, work.Kill)
        kill: work.Kill = message
        token = (kill.token[0], kill.token[1])
        for worker in self.workers:
            if worker.nonce == kill.worker and worker.process.alive:
                self._begin_kill(worker, token, kill)

    def _recall(self, recall: work.Recall) -> None:
        for worker in self.workers:
            if worker.nonce == recall.worker and worker.process.alive:
                started = worker.recall((recall.through[0], recall.through[1]))
                answer = work.Recalled(
                    recall.worker, recall.through, None if started is None else list(started)
                )
                self._send(answer)

    def _begin_kill(self, worker: SimWorker, token: Key, kill: work.Kill) -> None:
        """Ask the handler first; half of them do not listen and are killed after the grace."""
        if kill.grace_ms and not worker.process.stopped and self._host.heap.happens(0.5):
            worker.strike(token, kill.reason)
        self.process.after(kill.grace_ms, lambda: self._finish_kill(worker, token))

    def _finish_kill(self, worker: SimWorker, token: Key) -> None:
        attempt = worker.held.get(token)
        if worker.process.alive and worker.page == token and attempt is not None and attempt.report is None:
            self._kills[worker.nonce] = token
            worker.process.die()
