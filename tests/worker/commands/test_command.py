"""What a job of the kind `command` may ask for, and what a pool lets it run."""

from typing import Any

import pytest

from stoker.worker.commands.command import Command, Rules
from stoker.worker.commands.program import ProgramError

WRONG: list[tuple[str, Any]] = [
    ("directory", 1),
    ("env", ["A=b"]),
    ("env", {"A": 1}),
    ("pass_env", "A"),
    ("stdin", 1),
    ("stdin_file", b"a"),
    ("umask", "022"),
    ("rlimits", [["cpu_s", 1]]),
    ("rlimits", {"cpu_s": "1"}),
    ("oom_score_adj", "1"),
    ("ok", 0),
    ("ok", ["0"]),
    ("retry", {"1": 1}),
    ("permanent", [True]),
    ("stdout_bytes_max", 0),
    ("stderr_bytes_max", "1"),
    ("grace_s", -1),
    ("grace_s", 1e9),
    ("grace_s", float("nan")),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=[f"{name}={value!r}" for name, value in WRONG])
def test_what_cannot_be_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ProgramError, match=f"^{name} must be "):
        Command(["true"], **{name: value})


@pytest.mark.parametrize("argv", ["true", [], [1], None], ids=repr)
def test_program_is_a_list_of_texts(argv: Any) -> None:
    with pytest.raises(ProgramError, match=r"^argv must be a list of texts, the program first$"):
        Command(argv)


def test_one_source_for_stdin() -> None:
    with pytest.raises(ProgramError, match=r"^stdin must be left out if there is a stdin_file$"):
        Command(["cat"], stdin=b"", stdin_file="/etc/motd")


def test_pool_without_a_list_runs_everything() -> None:
    Rules().check(Command(["sh", "-c", "true"], env={"LD_PRELOAD": "x"}, pass_env=["SECRET"]))


ALLOWED = r"^this pool runs only /usr/bin/gzip, /usr/bin/rsync, each named by just that path$"


def command(**options: Any) -> Command:
    return Command(["true"], **options)


@pytest.mark.parametrize("name", ["retry", "permanent"])
def test_status_is_not_success_and_something_else_as_well(name: str) -> None:
    with pytest.raises(ProgramError, match=rf"^{name} must be without \[3\], which is ok$"):
        command(ok=[0, 3], **{name: [3, 4]})
    command(ok=[0, 3], **{name: [4]})


def test_pool_with_a_list_runs_what_is_in_it_by_its_whole_path() -> None:
    rules = Rules(["/usr/bin/gzip", "/usr/bin/rsync"])
    rules.check(Command(["/usr/bin/gzip", "-9", "a"]))
    for program in ("gzip", "/usr/bin/../bin/gzip", "/bin/gzip", "/usr/bin/gzi"):
        with pytest.raises(ProgramError, match=ALLOWED):
            rules.check(Command([program]))


@pytest.mark.parametrize("surroundings", [{"env": {"LD_PRELOAD": "x"}}, {"pass_env": ["SECRET"]}], ids=str)
def test_pool_with_a_list_takes_no_environment(surroundings: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match="takes no environment from jobs"):
        Rules(["/usr/bin/gzip"]).check(Command(["/usr/bin/gzip"], **surroundings))
