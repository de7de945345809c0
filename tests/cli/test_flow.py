"""pause, resume, drain, snapshot, kick and drop: what is asked, what is printed."""

import pytest
from support.command_line import CommandLine
from support.scripted_broker import Request, ScriptedBroker

from stoker.proto import messages
from stoker.proto.messages import Message

KNOWN = messages.StatusReport({"queues": {"mail": {}}, "kinds": {"k": {"queue": "declared"}}})


def is_status(request: Request) -> bool:
    return isinstance(request.message, messages.Status)


CASES: list[tuple[list[str], Message, Message, str]] = [
    (["pause", "mail"], messages.Done(), messages.Pause("mail"), ""),
    (["pause"], messages.Done(), messages.Pause(None), ""),
    (["resume", "mail"], messages.Done(), messages.Resume("mail"), ""),
    (["resume"], messages.Done(), messages.Resume(None), ""),
    (["drain", "--timeout", "2s"], messages.Drained(0), messages.Drain(2000), "0\n"),
    (["drain"], messages.Drained(0), messages.Drain(None), "0\n"),
    (["snapshot", "daily"], messages.SnapshotWritten("/d\x1b", 5), messages.Snapshot("daily"), "/d\\x1b\n"),
    (["kick", "a"], messages.Counted(1), messages.Kick("a", None, 1000), "1\n"),
    (["kick", "--queue", "mail", "--limit", "7"], messages.Counted(7), messages.Kick(None, "mail", 7), "7\n"),
    (["drop", "a"], messages.Counted(1), messages.Drop("a", None, 1000), "1\n"),
    (["drop", "--queue", "mail"], messages.Counted(0), messages.Drop(None, "mail", 1000), "0\n"),
]


@pytest.mark.parametrize(("arguments", "answer", "asked", "out"), CASES, ids=lambda case: str(case)[:30])
def test_command_asks_and_prints(
    arguments: list[str], answer: Message, asked: Message, out: str, socket_path: str, stoker: CommandLine
) -> None:
    with ScriptedBroker(socket_path, lambda request: KNOWN if is_status(request) else answer) as broker:
        ran = stoker(*arguments)
        assert [request.message for request in broker.requests if not is_status(request)] == [asked]
    assert (ran.code, ran.out) == (0, out)
    assert "no kind is declared" not in ran.err


@pytest.mark.parametrize("arguments", [["pause"], ["resume"], ["kick", "--queue"], ["drop", "--queue"]])
def test_queue_that_nobody_knows_is_doubted_and_obeyed(
    arguments: list[str], socket_path: str, stoker: CommandLine
) -> None:
    answer = messages.Counted(0) if "--queue" in arguments else messages.Done()
    with ScriptedBroker(socket_path, lambda request: KNOWN if is_status(request) else answer) as broker:
        ran = stoker(*arguments, "mial")
        assert [getattr(r.message, "queue", "") for r in broker.requests if not is_status(r)] == ["mial"]
    assert ran.code == 0
    assert "no job is in queue mial, no kind is declared for it" in ran.err


def test_queue_for_which_a_kind_is_declared_is_not_doubted(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, lambda r: KNOWN if is_status(r) else messages.Done()):
        assert "no job" not in stoker("pause", "declared").err


@pytest.mark.parametrize("answer", [messages.StatusReport({"left_out": {"queues": 1}}), messages.Done()])
def test_nothing_is_doubted_that_is_not_certain(
    answer: Message, socket_path: str, stoker: CommandLine
) -> None:
    with ScriptedBroker(socket_path, lambda r: answer if is_status(r) else messages.Done()):
        ran = stoker("pause", "mial")
    assert (ran.code, "no job" in ran.err) == (0, False)


def test_resume_without_a_queue_does_not_claim_to_resume_every_queue(
    socket_path: str, stoker: CommandLine
) -> None:
    with ScriptedBroker(socket_path, lambda _: messages.Done()) as broker:
        ran = stoker("resume")
        assert broker.requests[0].message == messages.Resume(None)
    assert "paused by name stays so" in ran.err


def test_drain_that_ran_out_of_time_is_exit_6(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, lambda _: messages.Drained(2)):
        ran = stoker("drain", "--timeout", "1s")
    assert (ran.code, ran.out) == (6, "2\n")
    assert "stoker jobs --state leased" in ran.err


def test_snapshot_name_that_cannot_be_one_is_exit_2(stoker: CommandLine) -> None:
    ran = stoker("snapshot", ".hidden")
    assert ran.code == 2
    assert "not beginning with a dot" in ran.err


@pytest.mark.parametrize("verb", ["kick", "drop"])
@pytest.mark.parametrize("arguments", [[], ["a", "--queue", "mail"]])
def test_either_a_job_or_a_queue(verb: str, arguments: list[str], stoker: CommandLine) -> None:
    assert stoker(verb, *arguments).code == 2
