"""What type checkers say of a program that uses stoker: wrong calls are refused, right ones are not.

Each checker reads the same small program. A line that is wrong is marked, and must be the only kind of
line that either complains about.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import sources

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WRONG = "# wrong"

PROGRAM = f"""
from stoker import App, AsyncClient, AsyncJobHandle, Client, JobHandle

app = App()


@app.job(queue="mail", attempts_max=5)
def send_webhook(url: str, body: dict[str, str]) -> int:
    return len(url) + len(body)


def enqueue() -> JobHandle:
    send_webhook.enqueue(1)  {WRONG}
    send_webhook.enqueue("u")  {WRONG}
    send_webhook.enqueue("u", {{}}, 3)  {WRONG}
    send_webhook.enqueue(url="u", text={{}})  {WRONG}
    send_webhook.using(delay_s=1).enqueue(1)  {WRONG}
    send_webhook.using(delay="soon")  {WRONG}
    send_webhook(1)  {WRONG}
    status: int = send_webhook("u", {{}})
    send_webhook.using(delay_s=status, id="a").enqueue("u", body={{}})
    return send_webhook.enqueue("u", {{"event": "paid"}})


async def aenqueue() -> AsyncJobHandle:
    await send_webhook.aenqueue(1)  {WRONG}
    await send_webhook.aenqueue("u", {{}}, 3)  {WRONG}
    await send_webhook.using(delay_s=1).aenqueue(1)  {WRONG}
    await send_webhook.using(delay_s=1, id="a").aenqueue("u", body={{}})
    return await send_webhook.aenqueue("u", {{"event": "paid"}})


def by_name(client: Client) -> str:
    client.enqueue("send_webhook", args=["u", {{}}], priority="high")  {WRONG}
    handle = client.enqueue("send_webhook", args=["u", {{}}], priority=5)
    handle.result(timeout_s=1)
    return handle.wait(timeout_s=1).state


async def by_name_in_a_loop() -> str:
    async with AsyncClient() as client:
        await client.enqueue("send_webhook", delay="soon")  {WRONG}
        handle: JobHandle = await client.enqueue("send_webhook")  {WRONG}
        stored = await client.enqueue("send_webhook", args=["u", {{}}], priority=5)
        await stored.result(timeout_s=1)
        return (await stored.wait(timeout_s=1)).state
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def wrong_lines() -> set[int]:
    return {number for number, line in enumerate(PROGRAM.splitlines(), 1) if WRONG in line}


def checked_by(*command: str | Path) -> str:
    return subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False, cwd=sources.ROOT
    ).stdout


def test_mypy_refuses_exactly_the_wrong_lines(program: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed here")
    said = checked_by("mypy", "--strict", "--no-error-summary", "--cache-dir", program.parent, program)
    lines = [line.split(":", 3) for line in said.splitlines() if ": error:" in line]
    assert {int(line[1]) for line in lines if line[0].endswith("program.py")} == wrong_lines(), said


def test_pyright_refuses_exactly_the_wrong_lines(program: Path) -> None:
    pytest.importorskip("pyright", reason="pyright is not installed here")
    (program.parent / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    # By its own configuration: that of this repository says what of it is to be checked.
    said = checked_by("pyright", "--outputjson", "--pythonpath", sys.executable, "-p", program.parent)
    found = json.loads(said)["generalDiagnostics"]
    errors = {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}
    assert errors == wrong_lines(), said
