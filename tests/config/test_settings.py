"""Settings of the broker: queue flags, and refusals that name what is wrong."""

import pytest

from stoker.config.settings import BrokerSettings, QueueSettings, SettingError, parse_queues
from stoker.proto import limits
from stoker.proto.model import Overflow


def test_queue_flag_sets_limits_and_policy() -> None:
    queues = parse_queues(["mail:jobs_max=100,bytes_max=1MiB,overflow=wait,lease=5s,priority=-3"])
    assert queues == {
        "mail": QueueSettings(
            jobs_max=100,
            bytes_max=limits.MIB,
            overflow=Overflow.WAIT,
            policy={"lease_ms": 5000, "priority": -3},
        )
    }


def test_queue_name_may_hold_colons() -> None:
    assert list(parse_queues(["a:b:jobs_max=1"])) == ["a:b"]


def test_unset_limits_keep_their_defaults() -> None:
    assert parse_queues(["mail:dead_max=0"])["mail"].jobs_max == limits.QUEUE_JOBS_MAX_DEFAULT


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("mail", "is not like"),
        ("mail:", "unknown; known are"),
        (":jobs_max=1", "is not like"),
        ("ma il:jobs_max=1", "is not like"),
        ("mail:jobs=1", "queue mail: jobs: unknown"),
        ("mail:jobs_max=x", "queue mail: jobs_max: 'x'"),
        ("mail:jobs_max=-1", "queue mail: jobs_max: '-1'"),
        ("mail:jobs_max=9007199254740993", "queue mail: jobs_max"),
        ("mail:jobs_max=1,jobs_max=2", "jobs_max is given twice"),
        ("mail:overflow=drop", "none of reject, wait, dead"),
        ("mail:lease=1ms", "queue mail: lease"),
        ("mail:lease=30", "is not a duration"),
        ("mail:priority=-9999999", "queue mail: priority"),
        ("mail:bytes_max=1kB", "is not a size"),
    ],
)
def test_bad_queue_flag_is_refused_by_name(flag: str, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        parse_queues([flag])


def test_queue_given_twice_is_refused() -> None:
    with pytest.raises(SettingError, match="queue mail: given twice"):
        parse_queues(["mail:jobs_max=1", "mail:dead_max=1"])


def test_unsafe_durability_is_refused() -> None:
    with pytest.raises(SettingError, match="OFF"):
        BrokerSettings(socket="/s", data="/d", synchronous="OFF")
