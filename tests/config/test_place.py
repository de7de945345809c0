"""Where the settings file is looked for."""

import pytest

from stoker.config.mistakes import SettingError
from stoker.config.place import Place, place

EVERYTHING = {
    "STOKER_CONFIG": "/named.toml",
    "CONFIGURATION_DIRECTORY": "/etc/it:/etc/other",
    "XDG_CONFIG_HOME": "/xdg",
    "HOME": "/home/ada",
}


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in EVERYTHING.items() if name not in names}


@pytest.mark.parametrize(
    ("flag", "environ", "uid", "found"),
    [
        ("flag.toml", EVERYTHING, 1000, Place("flag.toml", True)),
        (None, EVERYTHING, 1000, Place("/named.toml", True)),
        (None, without("STOKER_CONFIG"), 1000, Place("/etc/it/stoker.toml", False)),
        (None, {"XDG_CONFIG_HOME": "/xdg"}, 1000, Place("/xdg/stoker/stoker.toml", False)),
        (None, {"HOME": "/home/ada"}, 1000, Place("/home/ada/.config/stoker/stoker.toml", False)),
        (None, {"XDG_CONFIG_HOME": "xdg", "HOME": "/h"}, 1, Place("/h/.config/stoker/stoker.toml", False)),
        (None, {"XDG_CONFIG_HOME": "/xdg"}, 0, Place("/etc/stoker/stoker.toml", False)),
        (None, {"STOKER_CONFIG": "", "HOME": "/h"}, 0, Place("/etc/stoker/stoker.toml", False)),
        (None, {}, 1000, None),
    ],
)
def test_first_place_that_is_named_wins(
    flag: str | None, environ: dict[str, str], uid: int, found: Place | None
) -> None:
    assert place(flag, environ, uid) == found


def test_empty_path_is_refused() -> None:
    with pytest.raises(SettingError, match="--config"):
        place("", EVERYTHING, 1000)
