"""Variables without a key in config.json: where the gateway's files are, and more. `variables.py` has the others."""

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from gateway.config.places import Place, find


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

    @classmethod
    def read(cls, environ: Mapping[str, str], *, starting: bool = False) -> "Environment":
        """Read the variables; `starting` a gateway may be meant by more folders than using one."""
        place = find(environ, starting=starting)
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
