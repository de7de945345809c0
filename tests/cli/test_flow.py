"""pause, resume, drain, snapshot, kick and drop: what is asked, what is printed."""

import pytest
from support.command_line import CommandLine
from support.scripted_broker import ScriptedBroker

from stoker.proto import messages
from stoker.proto.messages import Message

CASES: list[tuple[list[str], Message, Message, str]] = [
    (["pause", "mail"], messages.Done(), messages.Pause("mail"), ""),
    (["pause"], messages.Done(), messages.Pause(None), ""),
    (["resume", "mail"], messages.Done(), messages.Resume("mail"), ""),
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
    with ScriptedBroker(socket_path, lambda _: answer) as broker:
        ran = stoker(*arguments)
        assert broker.requests[0].message == asked
    assert (ran.code, ran.out) == (0, out)


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


@pytest.mark.parametrize("verb", ["kick", "drop"])
@pytest.mark.parametrize("arguments", [[], ["a", "--queue", "mail"]])
def test_either_a_job_or_a_queue(verb: str, arguments: list[str], stoker: CommandLine) -> None:
    assert stoker(verb, *arguments).code == 2
