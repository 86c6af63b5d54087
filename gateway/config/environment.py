"""Variables without a key in config.json: where the gateway's files are, and more; and the record of the gateways that
were started, so that commands find yours from anywhere. `load.py` has the other variables."""

import os
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from gateway.config.data.files import read_regular, replace_regular
from gateway.config.data.instance import running_pid
from gateway.domain.errors import OwnerMustAct

MAX_PLACES = 20
"""Gateways that are remembered."""


class Place(NamedTuple):
    """The files of one gateway."""

    config: Path
    data: Path
    workspace: Path


_PLACES = TypeAdapter(list[Place])
_SOURCE = Path(__file__).parents[2]


def find_place(environ: Mapping[str, str], *, starting: bool = False) -> Place:
    """The gateway that is meant, by the environment, the working directory, the record; else the user's own folders.

    A folder that merely looks like a gateway's counts only to start one, or for who has none yet: anybody can put a
    config.json into what others download, and that names programs to run.
    """
    folder, known = Path.cwd(), known_places(environ)
    here = Place(folder / "config.json", folder / "data", folder / "data" / "workspace")
    if is_place_chosen(environ):
        return here
    if here.config.parent == _SOURCE and (_SOURCE / "pyproject.toml").exists():
        return here
    if (starting or not known) and (here.config.exists() or (here.data / "instance").exists()):
        return here
    if running_pid(here.data) is not None and os.geteuid() in (0, here.data.stat().st_uid):
        return here
    standing = (place for place in known if here.config.parent in (place.config.parent, place.data.parent))
    return next(standing, None) or (known[-1] if known else _default_place(environ))


def is_place_chosen(environ: Mapping[str, str]) -> bool:
    """Whether the environment says which gateway is meant."""
    return bool(environ.get("SUPACLAW_DATA") or environ.get("SUPACLAW_CONFIG"))


def known_places(environ: Mapping[str, str]) -> list[Place]:
    """The gateways that were started and still have data; the last one last."""
    with suppress(OSError, ValueError):
        return [place for place in _PLACES.validate_json(read_regular(_places_file(environ))) if place.data.is_dir()]
    return []


def remember_place(environ: Mapping[str, str], place: Place) -> None:
    """Remember the gateway as the last one that was started; a home that cannot be written to has no record."""
    file = _places_file(environ)
    if place.data not in file.parents:  # as in a container, whose home is the data folder
        known = [each for each in known_places(environ) if each.data != place.data]
        with suppress(OSError):
            replace_regular(file, _PLACES.dump_json([*known, place][-MAX_PLACES:]))


def check_only_agent(environ: Mapping[str, str], data: Path) -> None:
    """Raise `OwnerMustAct` if a start on `data` would be a second agent that nobody asked for."""
    known = known_places(environ)
    if known and not is_place_chosen(environ) and all(place.data != data for place in known):
        raise OwnerMustAct(
            f"you already have an agent, in {known[-1].data}; `cd && supaclaw up` starts it. "
            f"To start another one here: `SUPACLAW_DATA={data} supaclaw up`"
        )


def _default_place(environ: Mapping[str, str]) -> Place:
    data = _home(environ, "XDG_DATA_HOME", ".local/share")
    return Place(_home(environ, "XDG_CONFIG_HOME", ".config") / "config.json", data, data / "workspace")


def _places_file(environ: Mapping[str, str]) -> Path:
    return _home(environ, "XDG_STATE_HOME", ".local/state") / "gateways.json"


def _home(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """A relative path in such a variable counts as unset (XDG Base Directory Specification)."""
    given = Path(environ.get(variable, ""))
    return (given if given.is_absolute() else Path(environ.get("HOME") or Path.home(), default)) / "supaclaw"


@dataclass(frozen=True, slots=True)
class Environment:
    """Paths, and what has no key in config.json; paths are absolute, an empty variable counts as unset."""

    config: Path
    data: Path
    workspace: Path
    env_file: str = ".env"
    fail: str | None = None
    sign_in: str | None = None
    notify_socket: str | None = None
    workshop: Path | None = None
    """The socket of the service that runs commands, where there is one."""
    own: Path | None = None
    """Where a worker keeps what no other process may share; None: in `data`, which then is this process's alone."""
    first_code: str = field(default="", repr=False)
    """Signs a browser in, once, where nobody can run a command."""

    @classmethod
    def read(cls, environ: Mapping[str, str], *, starting: bool = False) -> "Environment":
        """Read the variables; `starting` a gateway may be meant by more folders than using one."""
        place = find_place(environ, starting=starting)
        config = Path(environ.get("SUPACLAW_CONFIG") or place.config).absolute()
        data = Path(environ.get("SUPACLAW_DATA") or place.data).absolute()
        workspace = place.workspace if data == place.data else data / "workspace"
        return cls(
            config=config,
            data=data,
            env_file=environ.get("SUPACLAW_ENV_FILE") or str(config.with_name(".env")),
            workspace=Path(environ.get("SUPACLAW_WORKSPACE") or workspace).absolute(),
            fail=environ.get("SUPACLAW_FAIL") or None,
            sign_in=environ.get("SUPACLAW_SIGN_IN") or None,
            first_code=environ.get("SUPACLAW_SIGN_IN_CODE", ""),
            workshop=Path(environ["SUPACLAW_WORKSHOP"]).absolute() if environ.get("SUPACLAW_WORKSHOP") else None,
            notify_socket=environ.get("NOTIFY_SOCKET") or None,
        )

    @property
    def state(self) -> Path:
        """The folder of this process: its lock, its id, its health file, its logs."""
        return self.own or self.data

    @property
    def place(self) -> Place:
        """Where its files are."""
        return Place(self.config, self.data, self.workspace)


def read_env_file(environ: MutableMapping[str, str], *, starting: bool = False) -> None:
    """Add the variables of the `.env` file to `environ`; those already there stay.

    A file that only root or another user may read is left to systemd or compose, which have read it by then.
    """
    file = Path(Environment.read(environ, starting=starting).env_file)
    if os.path.isfile(file) and os.access(file, os.R_OK):
        from dotenv import dotenv_values

        found = dotenv_values(file, interpolate=False, encoding="utf-8-sig")
        environ.update({name: value for name, value in found.items() if value and not environ.get(name)})
