"""All the environment variables that the gateway reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.domain.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Environment:
    """Paths, and overrides of config.json; paths are absolute, an empty variable counts as unset."""

    config: Path
    data: Path
    workspace: Path
    database_url: str | None = field(default=None, repr=False)
    host: str | None = None
    port: int | None = None
    fail: str | None = None
    public_url: str | None = None
    sign_in: str | None = None
    notify_socket: str | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> "Environment":
        """Read the variables; raises `ConfigError` if `SUPACLAW_PORT` is not a port."""
        data = Path(environ.get("SUPACLAW_DATA") or "data").absolute()
        return cls(
            config=Path(environ.get("SUPACLAW_CONFIG") or "config.json").absolute(),
            data=data,
            workspace=Path(environ.get("SUPACLAW_WORKSPACE") or data / "workspace").absolute(),
            database_url=environ.get("SUPACLAW_DATABASE_URL") or None,
            host=environ.get("SUPACLAW_HOST") or None,
            port=_port(environ.get("SUPACLAW_PORT") or None),
            fail=environ.get("SUPACLAW_FAIL") or None,
            public_url=environ.get("SUPACLAW_PUBLIC_URL") or None,
            sign_in=environ.get("SUPACLAW_SIGN_IN") or None,
            notify_socket=environ.get("NOTIFY_SOCKET") or None,
        )


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) > 65_535:
        raise ConfigError("SUPACLAW_PORT: must be a whole number from 0 to 65535")
    return int(text)
