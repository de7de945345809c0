"""The settings: what is wrong or doubtful is told, and not called right in the next line."""

import pytest

from stoker.config.sources import gather
from stoker.doctor.finding import Level
from stoker.doctor.settings import check_settings


@pytest.mark.parametrize(
    ("environ", "levels", "word"),
    [
        ({}, [Level.OK], "all settings are right"),
        ({"STOKER_SOKET": "x"}, [Level.WARNING, Level.OK], "everything else is right"),
        ({"STOKER_DATA": ""}, [Level.OK], "all settings are right"),
    ],
)
def test_variable_that_nobody_knows_is_not_called_right(
    environ: dict[str, str], levels: list[Level], word: str
) -> None:
    findings = list(check_settings(gather({}, (), environ, None), ()))
    assert [finding.level for finding in findings] == levels
    assert word in findings[-1].what
