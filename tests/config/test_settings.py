"""Settings of each program: made from what was said, paths found, names looked up."""

from typing import Any

import pytest

from stoker.config.people import People
from stoker.config.settings import BrokerSettings, PoolSettings, broker_settings, pool_settings
from stoker.config.sources import Effective, gather
from stoker.proto.model import Overflow
from stoker.proto.queuerules import QueueRules

HOME = {"HOME": "/home/ada"}
PLACES = {"broker.socket": "/s", "broker.data": "/d"}


def effective(*queues: str, **flags: str) -> Effective:
    given = PLACES | {name.replace("__", "."): text for name, text in flags.items()}
    return gather(given, queues, {}, None)


def made_broker(found: Effective) -> BrokerSettings:
    settings = broker_settings(found, {}, 1000)
    found.refuse_mistakes()
    return settings


def test_defaults_are_those_of_the_table() -> None:
    assert made_broker(effective()) == BrokerSettings(socket="/s", data="/d")
    assert pool_settings(effective(), {}, 1000) == PoolSettings(socket="/s", data="/d")


def test_values_reach_their_fields() -> None:
    settings = made_broker(effective(broker__kill_grace="2s", broker__socket_mode="0660"))
    assert (settings.kill_grace_ms, settings.socket_mode) == (2000, 0o660)


def test_queue_gets_limits_and_policy() -> None:
    settings = made_broker(effective("mail:jobs_max=1,overflow=wait,lease=5s,priority=-3"))
    rules = QueueRules(jobs_max=1, overflow=Overflow.WAIT, policy={"lease_ms": 5000, "priority": -3})
    assert settings.queues == {"mail": rules}


def test_paths_are_found_where_clients_look_for_them() -> None:
    found = gather({}, (), HOME, None)
    settings = broker_settings(found, HOME, 1000)
    assert settings.data == "/home/ada/.local/state/stoker"
    assert settings.socket == "/home/ada/.local/state/stoker/broker.sock"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"broker__socket": "/" + "x" * 107}, "--socket: broker.socket: socket path of 108 bytes"),
        ({"broker__socket_group": "no-such"}, "--socket-group: broker.socket_group: no group 'no-such'"),
        ({"access__work": "@no-such"}, "--access-work: access.work: no group 'no-such'"),
    ],
)
def test_what_cannot_be_found_is_a_mistake_of_its_key(flags: dict[str, str], says: str) -> None:
    found = effective(**flags)
    broker_settings(found, {}, 1000)
    (line,) = found.mistakes
    assert line.startswith(says)


def test_no_place_for_files_is_a_mistake_said_once() -> None:
    found = gather({}, (), {}, None)
    broker_settings(found, {}, 1000)
    pool_settings(found, {}, 1000)
    assert [line.split(": ")[1] for line in found.mistakes] == ["broker.socket", "broker.data"]


def test_access_is_numbers() -> None:
    settings = made_broker(effective(access__submit="1000,@1001,root", access__admin="@root"))
    assert settings.access.submit == People(frozenset({1000, 0}), frozenset({1001}))
    assert settings.access.admin == People(gids=frozenset({0}))
    assert settings.access.work == People()


def test_every_unknown_name_is_said() -> None:
    found = effective(access__submit="no-such,1000,@none-such")
    broker_settings(found, {}, 1000)
    assert len(found.mistakes) == 2


def test_pool_looks_no_names_up() -> None:
    found = effective(access__submit="no-such", pool__user="no-such-either")
    assert pool_settings(found, {}, 1000).user == "no-such-either"
    assert found.mistakes == []


def test_group_of_a_pool_without_a_user_is_a_mistake() -> None:
    found = effective(pool__group="daemon")
    pool_settings(found, {}, 1000)
    assert found.mistakes == ["--group: pool.group: needs a user as well (pool.user)"]


@pytest.mark.parametrize(("limit", "most"), [(None, None), (2**20, 3 * 2**20)])
def test_most_memory_is_that_of_all_workers(limit: int | None, most: int | None) -> None:
    fields: dict[str, Any] = {"workers": 3, "memory_limit_bytes": limit}
    assert PoolSettings(socket="/s", **fields).memory_bytes_max == most
