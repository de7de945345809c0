"""What only the blocking client has: threads, forks, its end. The rest is in `tests/conformance`."""

import os
import threading
from functools import partial

import pytest
from support.forking import forked
from support.scripted_broker import Request, ScriptedBroker, stores_everything
from support.waiting import wait_until

from stoker.client.sync import Client
from stoker.proto import messages
from stoker.proto.address import AddressError
from stoker.proto.messages import Message


def reports(request: Request) -> Message:
    """A script for status: says which connection asked."""
    return messages.StatusReport({"connection": request.connection, "request": request.number})


def test_path_over_the_limit_is_refused_when_the_client_is_made() -> None:
    with pytest.raises(AddressError, match="107"):
        Client("/tmp/" + "x" * 103)


def test_long_wait_of_one_thread_holds_up_no_other(socket_path: str) -> None:
    finish = threading.Event()

    def script(request: Request) -> Message:
        if isinstance(request.message, messages.Wait):
            finish.wait(10)
            return messages.Waited("a", "done", "ok", "", None, 1)
        return reports(request)

    with ScriptedBroker(socket_path, script) as broker, Client(socket_path) as client:
        thread = threading.Thread(target=client.wait, args=("a",))
        thread.start()
        wait_until(lambda: broker.requests, "the wait has arrived")
        for _ in range(20):
            client.status()
        finish.set()
        thread.join(10)
        assert broker.connection_count == 2


@pytest.mark.slow
def test_forked_children_open_their_own_connections(socket_path: str) -> None:
    with ScriptedBroker(socket_path, stores_everything) as broker, Client(socket_path) as client:
        client.enqueue("parent", id="p-0")
        children = [forked(partial(_enqueue_all, client, name)) for name in ("a", "b", "c", "d")]
        _enqueue_all(client, "p")
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        client.enqueue("parent", id="p-last")
        of_parent = {r.connection for r in broker.requests if r.message.id.startswith("p-")}
        of_children = {r.connection for r in broker.requests if not r.message.id.startswith("p-")}
        assert of_parent == {1}
        assert len(of_children) == 4


def _enqueue_all(client: Client, name: str) -> bool:
    return all(client.enqueue("k", id=f"{name}-{n}").id == f"{name}-{n}" for n in range(200))


def test_client_that_is_dropped_closes_its_connection(socket_path: str) -> None:
    with ScriptedBroker(socket_path, reports):
        Client(socket_path).status()
