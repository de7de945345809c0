"""What an enqueue says becomes the wire's units; what cannot be meant is refused by its name."""

import datetime
import math
from typing import Any

import pytest

from stoker.client.spec import JobSpec, OptionError
from stoker.client.values import ValueRefusedError, decode_value
from stoker.proto.errors import PayloadTooLargeError


def test_job_without_an_id_gets_a_fresh_one() -> None:
    first, second = JobSpec("k").message, JobSpec("k").message
    assert first.fresh
    assert first.id != second.id


def test_id_of_the_caller_is_not_fresh() -> None:
    message = JobSpec("k", id="order-1").message
    assert (message.id, message.fresh) == ("order-1", False)


def test_seconds_become_milliseconds() -> None:
    message = JobSpec("k", delay_s=1.5, time_limit_s=30, lease_s=0.1, backoff_s=2, expires_s=9).message
    assert (message.delay_ms, message.time_limit_ms, message.lease_ms) == (1500, 30_000, 100)
    assert (message.backoff_ms, message.expires_ms, message.backoff_cap_ms) == (2000, 9000, None)


def test_arguments_become_the_payload() -> None:
    assert decode_value(JobSpec("k", [1], {"a": 2}).message.payload) == [[1], {"a": 2}]


@pytest.mark.parametrize(
    "argv", [[], [""], "true", None, ["a\0b"], ["sh", "-c", "\0"], [b"true"], 5], ids=repr
)
def test_program_that_no_kernel_runs_is_refused(argv: Any) -> None:
    what = "argv must be a list of texts without zero bytes, the program first"
    with pytest.raises(OptionError, match=what):
        JobSpec("command", [argv])
    with pytest.raises(OptionError, match=what):
        JobSpec("command", [], {"argv": argv})


def test_program_is_no_affair_of_other_kinds_and_a_raw_payload_is_taken_as_it_is() -> None:
    assert JobSpec("k", ["a\0b"]).message.kind == "k"
    assert JobSpec("command", payload=b"[]").message.payload == b"[]"
    assert decode_value(JobSpec("command", [["true", ""]]).message.payload) == [[["true", ""]], {}]


def test_raw_payload_is_sent_as_it_is() -> None:
    assert JobSpec("k", payload=b"\xff").message.payload == b"\xff"


def test_raw_payload_beside_arguments_is_refused() -> None:
    with pytest.raises(OptionError, match="one or the other"):
        JobSpec("k", [1], payload=b"x")


@pytest.mark.parametrize(
    "moment",
    [
        1_700_000_000.5,
        datetime.datetime.fromtimestamp(1_700_000_000.5, datetime.UTC),
        datetime.datetime.fromtimestamp(1_700_000_000.5, datetime.timezone(datetime.timedelta(hours=5))),
    ],
)
def test_run_at_is_an_instant_in_any_zone(moment: Any) -> None:
    assert JobSpec("k", run_at=moment).message.run_at_ms == 1_700_000_000_500


def test_date_without_a_zone_is_refused() -> None:
    with pytest.raises(OptionError, match="time zone"):
        JobSpec("k", run_at=datetime.datetime(2030, 1, 1))


@pytest.mark.parametrize("seconds", [math.nan, math.inf, "5", True, 1e300])
def test_duration_that_is_no_number_of_seconds_is_refused_by_name(seconds: Any) -> None:
    with pytest.raises(OptionError, match="delay_s"):
        JobSpec("k", delay_s=seconds)


def test_unknown_option_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="'delay' is no option"):
        JobSpec("k", delay=5)


def test_text_as_payload_is_refused() -> None:
    with pytest.raises(OptionError, match="must be bytes, not str"):
        JobSpec("k", payload="text")


def test_payload_over_the_limit_is_refused_before_it_is_sent() -> None:
    with pytest.raises(PayloadTooLargeError):
        JobSpec("k", payload=b"x" * (2**20 + 1))


def test_value_that_cannot_travel_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueRefusedError, match=r"kwargs\.when"):
        JobSpec("k", kwargs={"when": datetime.date(2026, 7, 20)})
