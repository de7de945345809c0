"""Where the settings file is to be.

A daemon looks in one place that only its own user or root can have written, never in the directory it
happens to be started in: whoever can put a file there would be setting who may do what. The first
that is named wins, and a file that was named has to be there:

    --config FILE, STOKER_CONFIG
    $CONFIGURATION_DIRECTORY/stoker.toml     as a service manager says
    /etc/stoker/stoker.toml                  root
    $XDG_CONFIG_HOME/stoker/stoker.toml      everybody else; ~/.config if that is not set

Pure: no file is looked at. Apart from `file`, so that a command which finds that there is none loads
nothing to read one.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from .mistakes import SettingError

NAME = "stoker.toml"
NO_FILE = os.devnull
"""Named as the file, it says that there is none, whatever lies in the usual place."""


class Place(NamedTuple):
    """Where the file is to be."""

    path: str
    is_named: bool
    """Somebody asked for this one: that it is missing is a mistake."""


def place(flag: str | None, environ: Mapping[str, str], uid: int) -> Place | None:
    """Where to look; None if there is no place at all."""
    named = flag if flag is not None else environ.get("STOKER_CONFIG")
    if named:
        return Place(named, True)
    if flag is not None:
        raise SettingError("--config: the path is empty")
    managed = environ.get("CONFIGURATION_DIRECTORY", "").split(":", 1)[0]
    if managed:
        return Place(os.path.join(managed, NAME), False)
    if uid == 0:
        return Place(f"/etc/stoker/{NAME}", False)
    config_home = _absolute(environ, "XDG_CONFIG_HOME")
    home = _absolute(environ, "HOME")
    if not config_home and not home:
        return None
    return Place(os.path.join(config_home or os.path.join(home, ".config"), "stoker", NAME), False)


def _absolute(environ: Mapping[str, str], name: str) -> str:
    """The XDG rules say that a relative path in these variables is to be ignored."""
    value = environ.get(name, "")
    return value if value.startswith("/") else ""
