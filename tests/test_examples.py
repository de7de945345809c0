"""The README's code is the example, and the example runs."""

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import sources
from support.waiting import wait_until

EXAMPLES = sources.ROOT / "examples"


def code_of_example() -> str:
    """`examples/tasks.py` after its docstring."""
    return (EXAMPLES / "tasks.py").read_text(encoding="utf-8").split('"""', 2)[2].strip()


def test_readme_shows_the_example_as_it_is() -> None:
    readme = (sources.ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n# tasks\.py\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    assert block[1].strip() == code_of_example()


class Hook(http.server.BaseHTTPRequestHandler):
    """Accepts a webhook and keeps what it got on the server object."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Receiver)
        self.server.received.append((self.headers["Idempotency-Key"], json.loads(body)))
        self.send_response(202)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""


class Receiver(http.server.HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hook)
        self.received: list[tuple[str, object]] = []


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def up(short_directory: Path) -> Iterator[dict[str, str]]:
    """`stoker up` for the example; the environment in which other commands find it."""
    environ = {
        **os.environ,
        "STOKER_SOCKET": str(short_directory / "s"),
        "STOKER_DATA": str(short_directory / "d"),
    }
    command = [sys.executable, "-m", "stoker.cli.main", "up", "tasks:app", "--workers", "1"]
    process = subprocess.Popen(command, cwd=EXAMPLES, env=environ, start_new_session=True)
    wait_until((short_directory / "s").exists, "the broker's socket")
    yield environ
    process.terminate()
    assert process.wait(timeout=20) == 0


def stoker(*words: str, environ: dict[str, str]) -> str:
    command = [sys.executable, "-m", "stoker.cli.main", *words]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
def test_readme_commands_deliver_the_webhook(up: dict[str, str], receiver: Receiver) -> None:
    url = f"http://127.0.0.1:{receiver.server_port}/hook"
    id = stoker("enqueue", "send_webhook", "--args", json.dumps([url, {"event": "paid"}]), environ=up)
    stoker("wait", id, environ=up)
    assert receiver.received == [(id, {"event": "paid"})]
