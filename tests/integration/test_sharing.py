"""One client of a program that forks, with a real broker: every process gets the answers to its own requests."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stack import Stack

from stoker.client.values import decode_value

pytestmark = pytest.mark.slow

EACH = 200

# Whatever a process enqueues says who it was. All end as programs do, with every destructor and exit handler.
PROGRAM = """
import json, multiprocessing, os, sys
from stoker import Client

client = Client(sys.argv[1])
client.enqueue("k", ["first"])


def enqueue(number):
    text = f"{os.getpid()} {number}"
    return [client.enqueue("k", [text]).id, text]


def by_fork(each):
    children = []
    for _ in range(4):
        reader, writer = os.pipe()
        if not os.fork():
            with open(writer, "w") as answers:
                json.dump([enqueue(number) for number in range(each)], answers)
            sys.exit()
        os.close(writer)
        children.append(reader)
    enqueued = [enqueue(number) for number in range(each)]
    for reader in children:
        with open(reader) as answers:
            enqueued += json.load(answers)
    assert all(os.wait()[1] == 0 for _ in children)
    return enqueued


def by_multiprocessing(each):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        running = pool.map_async(enqueue, range(4 * each))
        enqueued = [enqueue(number) for number in range(each)]
        enqueued += running.get()
        pool.close()
        pool.join()
    return enqueued


enqueued = globals()[sys.argv[2]](int(sys.argv[3]))
enqueued.append(enqueue("last"))
print(json.dumps(enqueued))
"""


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        yield stack


@pytest.mark.parametrize("how", ["by_fork", "by_multiprocessing"])
def test_each_process_gets_the_ids_of_its_own_jobs(stack: Stack, how: str) -> None:
    command = [sys.executable, "-c", PROGRAM, stack.socket, how, str(EACH)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True)
    enqueued: list[tuple[str, str]] = json.loads(ran.stdout)
    assert len(enqueued) == 5 * EACH + 1
    assert len({id for id, _ in enqueued}) == len({text for _, text in enqueued}) == len(enqueued)
    stored = {id: decode_value(stack.client.show(id, payload=True)["payload"])[0] for id, _ in enqueued}
    assert stored == {id: [text] for id, text in enqueued}
