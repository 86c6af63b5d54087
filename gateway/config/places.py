"""Where a gateway's files are, and the record of those that were started: commands find yours from anywhere."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from gateway.config.data.files import read_regular, replace_regular
from gateway.config.data.instance import holder
from gateway.domain.errors import OwnerMustAct

MOST = 20
"""Gateways that are remembered."""


class Place(NamedTuple):
    """The files of one gateway."""

    config: Path
    data: Path
    workspace: Path


_PLACES = TypeAdapter(list[Place])
_SOURCE = Path(__file__).parents[2]


def find(environ: Mapping[str, str], *, starting: bool = False) -> Place:
    """The gateway that is meant, by the environment, the working directory, the record; else the user's own folders.

    A folder that merely looks like a gateway's counts only to start one, or for who has none yet: anybody can put a
    config.json into what others download, and that names programs to run.
    """
    here, known = _in_folder(Path.cwd()), started(environ)
    if is_chosen(environ):
        return here
    if here.config.parent == _SOURCE and (_SOURCE / "pyproject.toml").exists():
        return here
    if (starting or not known) and (here.config.exists() or (here.data / "instance").exists()):
        return here
    if holder(here.data) is not None and os.geteuid() in (0, here.data.stat().st_uid):
        return here
    standing = (place for place in known if here.config.parent in (place.config.parent, place.data.parent))
    return next(standing, None) or (known[-1] if known else _own_folders(environ))


def is_chosen(environ: Mapping[str, str]) -> bool:
    """Whether the environment says which gateway is meant."""
    return bool(environ.get("SUPACLAW_DATA") or environ.get("SUPACLAW_CONFIG"))


def started(environ: Mapping[str, str]) -> list[Place]:
    """The gateways that were started and still have data; the last one last."""
    with suppress(OSError, ValueError):
        return [place for place in _PLACES.validate_json(read_regular(_record(environ))) if place.data.is_dir()]
    return []


def record(environ: Mapping[str, str], place: Place) -> None:
    """Remember the gateway as the last one that was started; a home that cannot be written to has no record."""
    file = _record(environ)
    if place.data not in file.parents:  # as in a container, whose home is the data folder
        known = [each for each in started(environ) if each.data != place.data]
        with suppress(OSError):
            replace_regular(file, _PLACES.dump_json([*known, place][-MOST:]))


def check_only(environ: Mapping[str, str], data: Path) -> None:
    """Raise `OwnerMustAct` if a start on `data` would be a second agent that nobody asked for."""
    known = started(environ)
    if known and not is_chosen(environ) and all(place.data != data for place in known):
        raise OwnerMustAct(
            f"you already have an agent, in {known[-1].data}; `cd && supaclaw up` starts it. "
            f"To start another one here: `SUPACLAW_DATA={data} supaclaw up`"
        )


def _in_folder(folder: Path) -> Place:
    return Place(folder / "config.json", folder / "data", folder / "data" / "workspace")


def _own_folders(environ: Mapping[str, str]) -> Place:
    data = _home(environ, "XDG_DATA_HOME", ".local/share")
    return Place(_home(environ, "XDG_CONFIG_HOME", ".config") / "config.json", data, data / "workspace")


def _record(environ: Mapping[str, str]) -> Path:
    return _home(environ, "XDG_STATE_HOME", ".local/state") / "gateways.json"


def _home(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """A relative path in such a variable counts as unset (XDG Base Directory Specification)."""
    given = Path(environ.get(variable, ""))
    return (given if given.is_absolute() else Path(environ.get("HOME") or Path.home(), default)) / "supaclaw"
