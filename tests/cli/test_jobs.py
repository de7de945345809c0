"""`stoker jobs`: pages, filters, and rows that fit a terminal."""

import json

from support.command_line import CommandLine
from support.scripted_broker import Request, ScriptedBroker

from stoker.proto import messages
from stoker.proto.messages import Message

EVIL = "\x1b[31m"


def pages(request: Request) -> Message:
    """Five jobs, two on a page."""
    after = request.message.after
    rows = [
        {"id": f"job-{n}", "number": n, "state": "dead", "reason": EVIL * 30} for n in range(after + 1, 6)
    ]
    page = rows[:2]
    return messages.JobsPage(page, 0 if len(rows) <= 2 else after + 2)


def test_page_is_a_table_and_says_how_to_go_on(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, pages):
        ran = stoker("jobs", "--limit", "2")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["number", "1", "2"]
    assert "--after 2" in ran.err


def test_next_page_begins_after_the_last(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, pages):
        ran = stoker("jobs", "--limit", "2", "--after", "4")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["number", "5"]
    assert ran.err == ""


def test_all_goes_through_every_page(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, pages):
        lines = stoker("jobs", "--all", "--json").out.splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2, 3, 4, 5]


def test_filters_are_asked_for(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, pages) as broker:
        stoker("jobs", "--queue", "mail", "--state", "dead", "--kind", "k", "--after", "3", "--limit", "9")
        assert broker.requests[0].message == messages.Jobs("mail", "dead", "k", 3, 9)


def test_reason_is_escaped_and_cut(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, pages):
        ran = stoker("jobs")
    assert EVIL not in ran.out
    assert all(len(line) < 200 for line in ran.out.splitlines())


def test_no_jobs_print_nothing(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, lambda _: messages.JobsPage([], 0)):
        assert stoker("jobs") == (0, "", "")


def test_queue_and_kind_that_nobody_knows_are_doubted(socket_path: str, stoker: CommandLine) -> None:
    def script(request: Request) -> Message:
        is_status = isinstance(request.message, messages.Status)
        return messages.StatusReport({}) if is_status else messages.JobsPage([], 0)

    with ScriptedBroker(socket_path, script):
        ran = stoker("jobs", "--queue", "mial", "--kind", "rezise")
    assert (ran.code, ran.out) == (0, "")
    assert "queue mial," in ran.err
    assert "kind rezise;" in ran.err


def test_unknown_state_is_exit_2(stoker: CommandLine) -> None:
    assert stoker("jobs", "--state", "finished").code == 2
