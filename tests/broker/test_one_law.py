"""The one law, op by op: no answer, refusal or push shows a change that is not on disk.

The table of ops says which there are, and that of the code words which refusals: whoever adds one has
to add it here, or say why it can show nothing.
"""

from typing import Any

import pytest
from support.committers import EagerCommitter, EagerPusher, EagerRefuser
from support.one_law import POOL, RULES, WORKER, Case, Scene, enqueue
from support.shell import serving

from stoker.broker.committer import Committer
from stoker.proto import limits, messages, work
from stoker.proto.errors import REFUSALS
from stoker.proto.messages import ANSWER
from stoker.proto.ops import OPS

OTHERS = (("other", enqueue("new", "unknown")),)
ACKED = (("worker", work.Ack([])),)
CANCELLING = (("other", messages.Cancel("leased")),)
RESIZING = POOL._replace(kinds=[{"kind": "send"}, {"kind": "resize"}])
EXITED = work.Exited("worker-01", [], 1, None)
ANOTHER_POOL = POOL._replace(ticket=bytes(16), identity=["boot-id-1", 1, 2, 3, "another-one"], workers=[])


def full_list(word: str) -> list[dict[str, str]]:
    return [{"kind": f"{word}-{number}"} for number in range(limits.LIST_ITEMS_MAX)]


KINDS_FULL = tuple(("supervisor", POOL._replace(kinds=full_list(word))) for word in ("a", "b", "c"))


def fresh(id: str, **fields: Any) -> messages.Enqueue:
    return enqueue(id, "unknown", fresh=True, **fields)


CASES = {
    "enqueue": Case("client", enqueue("new"), pushes=("worker", work.Job)),
    "enqueue of a fresh id": Case("client", fresh("1")),
    "enqueue again": Case("client", enqueue("new", "unknown"), unstored=OTHERS, visits=1),
    "another body": Case("client", enqueue("new", "unknown", b"x"), "conflict", unstored=OTHERS, visits=1),
    "a fresh id twice": Case("client", fresh("1"), "conflict", unstored=(("other", fresh("1")),)),
    "a full queue": Case(
        "client", fresh("1", queue="small"), "queue_full", unstored=(("other", fresh("2", queue="small")),)
    ),
    "too many ids": Case(
        "client", fresh("1"), "ids_full", unstored=(("other", messages.Drop("cancelled")),), visits=1
    ),
    "cancel": Case("client", messages.Cancel("ready")),
    "cancel of a leased job": Case("client", messages.Cancel("leased"), pushes=("supervisor", work.Kill)),
    "cancel of a done job": Case(
        "client", messages.Cancel("leased"), "too_late", unstored=ACKED, from_disk=True
    ),
    "cancel of no job": Case(
        "client",
        messages.Cancel("dead"),
        "job_not_found",
        unstored=(("other", messages.Drop("dead")),),
        visits=1,
        from_disk=True,
    ),
    "kick": Case("client", messages.Kick("dead"), pushes=("worker", work.Job)),
    "kick of a queue": Case("client", messages.Kick(queue="default"), pushes=("worker", work.Job)),
    "kick of a live job": Case("client", messages.Kick("new"), "not_dead", unstored=OTHERS, visits=1),
    "drop": Case("client", messages.Drop("cancelled")),
    "drop of a queue": Case("client", messages.Drop(queue="default")),
    "drop of a live job": Case("client", messages.Drop("new"), "not_finished", unstored=OTHERS, visits=1),
    "show": Case("client", messages.Show("new"), unstored=OTHERS, visits=1, from_disk=True),
    "jobs": Case("client", messages.Jobs(), unstored=OTHERS, visits=1, from_disk=True),
    "status": Case("client", messages.Status(), unstored=OTHERS, visits=1),
    "why": Case("client", messages.Why("new"), unstored=OTHERS, visits=1),
    "wait": Case("client", messages.Wait("leased"), unstored=ACKED, from_disk=True),
    "wait for the end of a job": Case("worker", work.Ack([]), before=(("other", messages.Wait("leased")),)),
    "wait that is over": Case("client", messages.Wait("new", timeout_ms=0), unstored=OTHERS, visits=1),
    "follow": Case("client", messages.Follow("leased"), unstored=ACKED, from_disk=True),
    "follow that is over": Case(
        "client", messages.Follow("new", timeout_ms=0), unstored=OTHERS, visits=1, from_disk=True
    ),
    "follow to the end": Case(
        "client", messages.Cancel("ready"), before=(("other", messages.Follow("ready")),)
    ),
    "follow of what runs": Case(
        "client",
        messages.Follow("leased", timeout_ms=0),
        unstored=OTHERS,
        visits=1,
        pushes=("worker", work.Stream),
    ),
    "pause": Case("client", messages.Pause("default")),
    "resume": Case("client", messages.Resume("default"), unstored=(("other", messages.Pause("default")),)),
    "drain": Case("client", messages.Drain(), unstored=ACKED),
    "snapshot": Case("client", messages.Snapshot("one"), unstored=OTHERS, visits=1, from_disk=True),
    "hello": Case("again", WORKER, hung_up=True, pushes=("again", work.Job)),
    "hello of a client": Case("again", messages.Hello(1, "submit"), unstored=OTHERS, visits=1),
    "ack": Case("worker", work.Ack([])),
    "ack again": Case("worker", work.Ack([]), unstored=ACKED),
    "nack after ack": Case("worker", work.Nack([], "error", "why"), "lease_lost", unstored=ACKED),
    "nack": Case("worker", work.Nack([], "error", "why")),
    "nack for good": Case("worker", work.Nack([], "permanent", "why")),
    "release": Case("worker", work.Release([], "released"), pushes=("worker", work.Job)),
    "release unstarted": Case("worker", work.Release([], "not_started"), pushes=("worker", work.Job)),
    "heartbeat with a wish": Case("worker", work.Heartbeat([[]]), unstored=CANCELLING),
    "pool": Case("supervisor", RESIZING),
    "too many kinds": Case(
        "again", ANOTHER_POOL._replace(kinds=full_list("d")), "kinds_full", unstored=KINDS_FULL
    ),
    "exited": Case("supervisor", EXITED, hung_up=True),
    "recalled": Case(
        "supervisor", work.Recalled("worker-01", [limits.INTEGER_MAX, 0]), pushes=("worker", work.Job)
    ),
}

SHOW_NOTHING = {
    messages.Help: "what it says is a constant",
    work.Progress: "is never answered",
    work.Output: "who follows, is not in the journal",
    work.Recall: "names a worker, and a token that left the broker long before",
}

SHOW_NO_CHANGE = {
    "shutting_down": "said to everybody when the broker ends",
    "storage_full": "how much room there is, is not in the journal",
    "pools_full": "who is connected, is not in the journal",
    "waits_full": "how many requests wait, is not in the journal",
    "snapshot_failed": "of a file beside the journal",
    "name_taken": "of a file beside the journal",
    "internal": "said instead of an answer, when that might leave",
}
"""Refusals by the rules of the queue that can show nothing which a crash could take back."""

OF_BYTES = {
    *("bad_frame", "frame_too_large", "frame_timeout", "handshake_timeout", "http_refused"),
    *("too_many_connections", "bad_message", "unknown_op", "forbidden", "wrong_state"),
    *("version_mismatch", "payload_too_large"),
}
"""Refusals of what was said, whatever is in the journal."""


async def play(socket_path: str, case: Case, committer: type[Committer] = Committer) -> None:
    async with serving(socket_path, rules=RULES, has_chores=False) as shell:
        scene = Scene(shell)
        await scene.prepare()
        shell.driver.committer.__class__ = committer
        await scene.play(case)


@pytest.mark.trio
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_nothing_is_said_before_it_is_on_disk(socket_path: str, case: Case) -> None:
    await play(socket_path, case)


def test_every_op_is_held_to_the_law() -> None:
    said: set[type[Any]] = {type(case.message) for case in CASES.values()}
    pushed = {case.pushes[1] for case in CASES.values() if case.pushes is not None}
    assert said | pushed == {op.message for op in OPS} - set(SHOW_NOTHING)


def test_every_refusal_is_held_to_the_law() -> None:
    refused = {case.says for case in CASES.values()} - {ANSWER}
    assert refused == set(REFUSALS) - set(SHOW_NO_CHANGE) - OF_BYTES


# --- what would be noticed -------------------------------------------------------------------------------


def caught_by(committer: type[Committer]) -> dict[str, Case]:
    """The cases that must find that broken build out."""
    if committer is EagerPusher:
        return {name: case for name, case in CASES.items() if case.pushes is not None}
    refuses = committer is EagerRefuser
    return {
        name: case for name, case in CASES.items() if not case.from_disk and (case.says != ANSWER) == refuses
    }


@pytest.mark.trio
@pytest.mark.parametrize(
    ("committer", "case"),
    [
        pytest.param(committer, case, id=f"{committer.__name__}-{name}")
        for committer in (EagerCommitter, EagerRefuser, EagerPusher)
        for name, case in caught_by(committer).items()
    ],
)
async def test_what_is_said_too_early_is_noticed(
    socket_path: str, committer: type[Committer], case: Case
) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await play(socket_path, case, committer)
    assert raised.group_contains(AssertionError, match="heard of what is not on disk")
