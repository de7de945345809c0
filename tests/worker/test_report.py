"""Reports: they always exist, are bounded, and are text that can be stored and sent."""

import pytest

from stoker.config.durations import parse_duration
from stoker.proto import limits, work
from stoker.worker import attempt
from stoker.worker.report import CHAIN_MAX, cut, reason_of, report_of


class RaisingText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class ExitingText(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class TwoArguments(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)
        self.two = two


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - any of them, that is what is tested
        return caught


def chain_of(length: int) -> BaseException:
    error: BaseException = ValueError("innermost")
    for number in range(length):
        outer = ValueError(f"cause {number}")
        outer.__cause__ = error
        error = outer
    return error


def circle() -> BaseException:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


AWKWARD = {
    "str raises": RaisingText(),
    "str exits": ExitingText(),
    "two arguments": TwoArguments("a", "b"),
    "20 MB": ValueError("x" * 20_000_000),
    "lone surrogate and NUL": ValueError("a\ud800b\0c"),
    "wide characters": ValueError("\U0001f600" * 100_000),
    "2000 causes": chain_of(2000),
    "circle of causes": circle(),
    "group": ExceptionGroup("several", [ValueError("first"), RaisingText()]),
    "nothing": KeyboardInterrupt(),
}


@pytest.mark.parametrize("error", AWKWARD.values(), ids=AWKWARD.keys())
def test_report_and_reason_of_an_awkward_exception_are_bounded_text(error: BaseException) -> None:
    reason, report = reason_of(raised(error)), report_of(raised(error))
    assert 0 < len(reason.encode()) <= limits.REASON_BYTES_MAX
    assert 0 < len(report.encode()) <= limits.REPORT_BYTES_MAX
    assert "\0" not in reason + report
    assert type(error).__name__ in reason


def test_reason_is_class_and_message() -> None:
    assert reason_of(ValueError("wrong")) == "ValueError: wrong"
    assert reason_of(TwoArguments("a", "b")).endswith("test_report.TwoArguments: a")


def test_text_that_cannot_be_had_is_said_to_be_so() -> None:
    assert "str raised RuntimeError" in reason_of(RaisingText())


def test_report_shows_where_it_was_raised() -> None:
    report = report_of(raised(ValueError("wrong")))
    assert report.startswith("ValueError: wrong\n")
    assert "in raised" in report
    assert "raise error" in report


def test_frames_that_lead_to_the_handler_are_left_out() -> None:
    def handler() -> None:
        raise ValueError("wrong")

    answer = attempt.run(handler, (1, 1), b"", attempt.Guard(), fits=lambda *_: None)
    assert isinstance(answer, work.Nack)
    assert "in handler" in answer.report
    assert "attempt.py" not in answer.report


def test_fault_of_stoker_itself_keeps_its_frames() -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration("x")
    assert caught.tb.tb_next is not None
    assert "in parse_duration" in report_of(caught.value.with_traceback(caught.tb.tb_next))


def test_report_tells_cause_and_context() -> None:
    try:
        try:
            raise KeyError("k")
        except KeyError as error:
            raise ValueError("v") from error
    except ValueError as error:
        assert "caused by: KeyError: 'k'" in report_of(error)


def test_report_tells_notes_and_members_of_a_group() -> None:
    error = ExceptionGroup("several", [ValueError("first")])
    error.add_note("seen on Tuesday")
    report = report_of(error)
    assert "note: seen on Tuesday" in report
    assert "one of the group: ValueError: first" in report


def test_long_chain_is_shown_to_its_limit() -> None:
    assert report_of(chain_of(2000)).count("caused by: ") == CHAIN_MAX - 1


def test_deep_recursion_shows_the_innermost_frames() -> None:
    def recurse(depth: int) -> None:
        if depth == 0:
            raise ValueError("bottom")
        recurse(depth - 1)

    with pytest.raises(ValueError) as caught:
        recurse(300)
    report = report_of(caught.value)
    assert "outer frames left out" in report
    assert 'raise ValueError("bottom")' in report


def test_short_text_is_not_cut() -> None:
    assert cut("héllo", 6) == "héllo"


@pytest.mark.parametrize("length", [101, 250, 399, 401, 100_000])
@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600"])
def test_cut_keeps_both_ends_and_says_that_it_cut(letter: str, length: int) -> None:
    text = cut("A" + letter * length + "Z", 100)
    assert len(text.encode()) <= 100
    assert text.startswith("A") and text.endswith("Z")
    assert "left out" in text
