"""Programs that can never run are refused when they are named."""

from typing import Any

import pytest

from stoker.proto import limits
from stoker.worker.commands.program import ARGUMENT_BYTES_MAX, LIMITS, Program, ProgramError

RIGHT: dict[str, Any] = {
    "argv": [b"convert", b""],
    "directory": b"/tmp",
    "env": {b"PATH": b"/bin", b"EMPTY": b""},
    "umask": 0o777,
    "limits": dict.fromkeys(LIMITS, 1),
    "oom_score_adj": 1000,
}


def refusal(**fields: Any) -> str:
    with pytest.raises(ProgramError) as caught:
        Program(**(RIGHT | fields)).check()
    return str(caught.value)


def test_extremes_are_right() -> None:
    Program(**RIGHT).check()
    least: dict[str, Any] = RIGHT | {"umask": 0, "oom_score_adj": 0, "limits": {}, "env": {}}
    Program(**least).check()


@pytest.mark.parametrize("argv", [[], [b""], [b"", b"x"]])
def test_one_without_a_program(argv: list[bytes]) -> None:
    assert refusal(argv=argv) == "no program is named"


@pytest.mark.parametrize(("argv", "at"), [([b"a\0b"], 0), ([b"sh", b"-c", b"echo \0"], 2)])
def test_zero_byte_in_an_argument_is_named(argv: list[bytes], at: int) -> None:
    assert refusal(argv=argv).startswith(f"argument {at} has a zero byte in it: '")


@pytest.mark.parametrize(
    ("directory", "text"),
    [
        (b"", "must be an absolute path, not ''"),
        (b"tmp", "must be an absolute path, not 'tmp'"),
        (b"./\xff", "must be an absolute path, not './\\\\xff'"),
        (b"/tmp\0", "has a zero byte in it"),
    ],
)
def test_directory(directory: bytes, text: str) -> None:
    assert refusal(directory=directory) == f"the working directory {text}"


@pytest.mark.parametrize(
    "env", [{b"A=B": b"1"}, {b"": b"1"}, {b"A\0": b"1"}, {b"A": b"1\0"}, {b"FINE": b"1", b"=": b""}]
)
def test_variable(env: dict[bytes, bytes]) -> None:
    assert refusal(env=env).endswith(" cannot be a variable of the environment")


def test_text_of_a_refusal_is_short() -> None:
    assert len(refusal(env={b"=" * 100_000: b""})) < 200
    assert len(refusal(argv=[b"sh", b"\0" * 100_000])) < 400


def test_value_of_a_variable_is_never_shown() -> None:
    assert "secret" not in refusal(env={b"KEY": b"secret\0"})


@pytest.mark.parametrize("umask", [-1, 0o1000, "022", None, True])
def test_umask(umask: object) -> None:
    assert refusal(umask=umask) == f"the umask must be from 0 to 511 (0o777), not {umask!r}"


@pytest.mark.parametrize("value", [-1, 1001, "5", 0.5])
def test_oom_score_adj(value: object) -> None:
    assert refusal(oom_score_adj=value) == f"oom_score_adj must be from 0 to 1000, not {value!r}"


def test_limit_of_an_unknown_name_is_told_which_there_are() -> None:
    assert refusal(limits={"memory": 1}) == f"no limit is called 'memory'; there are {', '.join(LIMITS)}"


@pytest.mark.parametrize("value", [0, -1, limits.INTEGER_MAX + 1, "1", 1.5, None])
def test_value_of_a_limit(value: object) -> None:
    text = refusal(limits={"cpu_s": value})
    assert text == f"the limit cpu_s must be from 1 to {limits.INTEGER_MAX}, not {value!r}"


@pytest.mark.parametrize(
    "fields",
    [
        {"argv": [b"true", b"x" * ARGUMENT_BYTES_MAX]},
        {"argv": [b"true", *[b""] * (ARGUMENT_BYTES_MAX // 9)]},
        {"env": {b"A": b"x" * ARGUMENT_BYTES_MAX}},
    ],
    ids=["one argument", "many arguments", "environment"],
)
def test_more_than_any_kernel_takes(fields: dict[str, Any]) -> None:
    assert "and no more than 6291456 can be" in refusal(**fields)
