"""Keys that the page or `supaclaw init` saved: `$SUPACLAW_DATA/keys/*.env`, readable by the gateway's user only.

They fill `"$env:NAME"` in config.json where the environment has no such variable, and set nothing by themselves. The
next start of the gateway makes secrets of them.
"""

import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

from gateway.config.data.durable import replace_private
from gateway.config.data.files import read_regular
from gateway.domain.errors import ConfigError

_VALUE = re.compile(r"[!-&(-\[\]-~]+")
"""Visible ASCII that needs no escape between single quotes."""


def read_keys(data: Path, files: str = "*.env") -> dict[str, str]:
    """The saved names and values; raises `ConfigError` for a file that cannot be read."""
    from dotenv import dotenv_values

    keys: dict[str, str] = {}
    for file in sorted((data / "keys").glob(files)):
        try:
            text = StringIO(read_regular(file).decode("utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or 'no text'}") from None
        keys |= {name: value for name, value in dotenv_values(stream=text, interpolate=False).items() if value}
    return keys


def save_keys(data: Path, name: str, keys: Mapping[str, str]) -> None:
    """Replace the file of this name atomically.

    Raises `ConfigError` for a value that is no key, and where the folder cannot be written to.
    """
    for variable, value in keys.items():
        if not _VALUE.fullmatch(value):
            raise ConfigError(f"what was given for {variable} holds spaces, quotes or line breaks; copy it again")
    path = data / "keys" / f"{name}.env"
    text = "".join(f"{variable}='{value}'\n" for variable, value in keys.items())
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(path, text.encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
