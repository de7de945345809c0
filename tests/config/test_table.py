"""The table of settings: every row has names of its own, and a field of the settings that use it."""

from collections import Counter

import attrs
import pytest

from stoker.broker.core.rules import Policy
from stoker.config.settings import AccessSettings, BrokerSettings, PoolSettings
from stoker.config.table import (
    ACCESS,
    BROKER,
    BY_NAME,
    POOL,
    QUEUE_LIMITS,
    QUEUE_SETTINGS,
    SETTINGS,
    Setting,
    keys_of,
)
from stoker.proto import limits
from stoker.proto.queuerules import QueueRules


@pytest.mark.parametrize("name", ["name", "environ", "flag"])
def test_no_two_settings_share_a_name(name: str) -> None:
    counts = Counter(getattr(setting, name) for setting in SETTINGS)
    assert [each for each, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(
    ("table", "settings"), [(BROKER, BrokerSettings), (ACCESS, AccessSettings), (POOL, PoolSettings)]
)
def test_every_row_has_its_field(table: str, settings: type[attrs.AttrsInstance]) -> None:
    fields = {field.name for field in attrs.fields(settings)}
    assert {setting.field for setting in keys_of(table).values()} <= fields


def test_settings_of_a_queue_are_its_limits_and_the_policy_of_a_job() -> None:
    fields = {setting.field for setting in QUEUE_SETTINGS}
    assert fields == QUEUE_LIMITS - {"policy"} | {*Policy._fields, "priority", "expires_ms"}


@pytest.mark.parametrize("setting", [s for s in QUEUE_SETTINGS if s.default is None], ids=lambda s: s.key)
def test_default_of_a_policy_in_words_is_the_real_one(setting: Setting) -> None:
    default = Policy._field_defaults.get(setting.field)
    if default is not None:
        assert setting.kind.parse(setting.default_text) == default


def test_defaults_of_a_queue_are_those_of_its_rules() -> None:
    defaults = {s.field: s.default for s in QUEUE_SETTINGS if s.field in QUEUE_LIMITS}
    assert QueueRules(**defaults) == QueueRules()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broker.kill_grace", "0s"),
        ("broker.reconnect_grace", "0s"),
        ("broker.supervisor_grace", "10ms"),
        ("broker.low_water", "5"),
        ("queues.jobs_max", "0"),
        ("queues.bytes_max", "5"),
    ],
)
def test_what_cannot_be_meant_is_out_of_range(name: str, text: str) -> None:
    with pytest.raises(ValueError):
        BY_NAME[name].kind.parse(text)


@pytest.mark.parametrize(
    "setting", [s for s in BY_NAME.values() if s.default not in (None, ())], ids=lambda s: s.name
)
def test_every_default_is_allowed(setting: Setting) -> None:
    assert setting.kind.take(setting.kind.show(setting.default)) == setting.default


def test_default_of_the_workers_is_allowed() -> None:
    workers = keys_of(POOL)["workers"]
    assert 1 <= workers.default <= limits.LIST_ITEMS_MAX
