"""The README's code is the example, and the example runs."""

import hashlib
import http.server
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from support import sources
from support.listening import listens
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
def environ(short_directory: Path) -> dict[str, str]:
    """The environment in which all commands of a test find one broker."""
    return {
        **os.environ,
        "STOKER_SOCKET": str(short_directory / "s"),
        "STOKER_DATA": str(short_directory / "d"),
        "REPORTS": str(short_directory / "reports.sqlite"),
    }


@contextmanager
def running(*words: str, environ: dict[str, str]) -> Generator[None]:
    """A daemon in the examples' directory, ended in order afterwards."""
    command = [sys.executable, "-m", "stoker.cli.main", *words]
    process = subprocess.Popen(command, cwd=EXAMPLES, env=environ, start_new_session=True)
    try:
        wait_until(lambda: listens(environ["STOKER_SOCKET"]), "the broker listens")
        yield
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0


def run(*words: str, environ: dict[str, str], code: int = 0) -> str:
    ended = subprocess.run(words, env=environ, cwd=EXAMPLES, check=False, capture_output=True, text=True)
    assert ended.returncode == code, ended.stderr
    return ended.stdout.strip()


def stoker(*words: str, environ: dict[str, str]) -> str:
    return run(sys.executable, "-m", "stoker.cli.main", *words, environ=environ)


@pytest.fixture
def up(environ: dict[str, str]) -> Iterator[dict[str, str]]:
    """`stoker up` for the README's example; the environment of it."""
    with running("up", "tasks:app", "--workers", "1", environ=environ):
        yield environ


@pytest.mark.slow
def test_readme_commands_deliver_the_webhook(up: dict[str, str], receiver: Receiver) -> None:
    url = f"http://127.0.0.1:{receiver.server_port}/hook"
    id = stoker("enqueue", "send_webhook", "--args", json.dumps([url, {"event": "paid"}]), environ=up)
    stoker("wait", id, environ=up)
    assert receiver.received == [(id, {"event": "paid"})]


def has_imagemagick() -> bool:
    convert = shutil.which("convert", path="/usr/bin:/usr/local/bin")
    return (
        convert is not None
        and b"imagemagick.org"
        in subprocess.run([convert, "--version"], capture_output=True, check=False).stdout
    )


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Real images that come with Python, two of them broken."""
    idlelib = pytest.importorskip(
        "idlelib", reason="this Python comes without its editor, whose icons these are"
    )
    icons = Path(idlelib.__path__[0], "Icons")
    directory = tmp_path / "pictures"
    directory.mkdir()
    for path in icons.iterdir():
        shutil.copy(path, directory)
    whole = (icons / "idle_256.png").read_bytes()
    (directory / "cut off.png").write_bytes(whole[:300])
    (directory / "100%d.png").write_bytes(whole)
    (directory / "no image.jpg").write_bytes(b"this is no image\n")
    return directory


@pytest.mark.slow
@pytest.mark.skipif(not has_imagemagick(), reason="ImageMagick is not installed")
def test_thumbnails_of_all_images_and_a_reason_for_each_that_is_broken(
    environ: dict[str, str], tmp_path: Path, pictures: Path
) -> None:
    environ["PATH"] = f"/usr/bin:{environ['PATH']}"
    thumbnails = tmp_path / "thumbnails"
    images = {path.name for path in pictures.iterdir() if path.suffix in {".png", ".gif", ".jpg"}}
    whole = images - {"cut off.png", "no image.jpg"}
    assert len(whole) >= 10
    with running("up", "thumbnails:app", "--commands", "--workers", "1", environ=environ):
        said = run(sys.executable, "thumbnails.py", str(pictures), str(thumbnails), environ=environ, code=1)
        *broken, last = said.splitlines()
        assert last == f"thumbnails={len(whole)} broken=2"
        assert [line.partition(":")[0] for line in broken] == ["cut off.png", "no image.jpg"]
        assert all("@ error/" in line for line in broken), broken
        dead = stoker("jobs", "--state", "dead", "--json", environ=environ)
        assert {json.loads(line)["outcome"] for line in dead.splitlines()} == {"permanent"}
        again = run(sys.executable, "thumbnails.py", str(pictures), str(thumbnails), environ=environ, code=1)
        assert again.splitlines()[-1] == "thumbnails=0 broken=2"
    assert {path.name for path in thumbnails.iterdir()} == {f"{name}.png" for name in whole}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in thumbnails.iterdir())


def test_examples_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert len(lengths) >= 5
    assert {name: length for name, length in lengths.items() if length >= 60} == {}


@pytest.mark.slow
def test_webhooks_all_arrive_at_a_receiver_that_fails_at_random(environ: dict[str, str]) -> None:
    with running("up", "webhooks:app", "--workers", "4", environ=environ):
        said = run(sys.executable, "webhooks.py", "100", environ=environ)
        found = re.fullmatch(r"sent=100 done=100 received=100 failures=(\d+)", said)
        assert found is not None, said
        said = stoker("jobs", "--queue", "hooks", "--json", environ=environ)
        jobs = [json.loads(line) for line in said.splitlines()]
        assert sum(job["attempt"] - 1 for job in jobs) == int(found[1]) > 0


@pytest.mark.slow
def test_fetcher_fetches_side_by_side(environ: dict[str, str]) -> None:
    serving = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(http.server.SimpleHTTPRequestHandler, directory=str(EXAMPLES))
    )
    with serving, running("up", "fetcher:app", environ=environ):
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        urls = [f"http://127.0.0.1:{serving.server_port}/{name}.py" for name in ("fetcher", "tasks", "none")]
        said = run(sys.executable, "fetcher.py", *urls, environ=environ).splitlines()
        serving.shutdown()
    digest = hashlib.sha256((EXAMPLES / "tasks.py").read_bytes()).hexdigest()
    assert sorted(line.split()[0] for line in said) == ["200", "200", "404"]
    assert digest in " ".join(said)


@pytest.mark.slow
def test_nightly_job_runs_once_a_day_however_often_it_is_asked_for(environ: dict[str, str]) -> None:
    with running("up", "nightly:app", "--workers", "2", environ=environ):
        day = "report-2026-11-29"
        said = [stoker("enqueue", "nightly_report", "--id", day, environ=environ) for _ in range(3)]
        assert said == [day] * 3
        assert stoker("wait", day, environ=environ) == '"2026-11-29"'
    rows = sqlite3.connect(environ["REPORTS"]).execute("SELECT * FROM reports").fetchall()
    assert rows == [("2026-11-29", "report-2026-11-29")]


@pytest.mark.slow
def test_two_apps_share_a_broker_and_no_kind(environ: dict[str, str]) -> None:
    with (
        running("broker", environ=environ),
        running("pool", "two_apps:shop", "--workers", "1", "--queues", "orders,default", environ=environ),
        running("pool", "two_apps:blog", "--workers", "1", "--queues", "default", environ=environ),
    ):
        expected = {"shop": "in the window: a lamp", "blog": "on the front page: a lamp"}
        for app, said in expected.items():
            id = stoker("enqueue", f"{app}.publish", "--args", '["a lamp"]', environ=environ)
            assert json.loads(stoker("wait", id, environ=environ)) == said
        id = stoker("enqueue", "shop.charge", "--args", '["o1", 1250]', environ=environ)
        assert json.loads(stoker("wait", id, environ=environ)) == "o1: 12.50"
