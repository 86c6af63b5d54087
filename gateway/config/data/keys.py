"""Keys in `$SUPACLAW_DATA/keys`, readable by the gateway's user only: `*.env`, which the page or `supaclaw init` saved,
and the master key of the secrets, unless a variable gives it or names its file.

The saved ones fill `"$env:NAME"` in config.json where the environment has no such variable, and set nothing by
themselves. The next start of the gateway turns them into secrets.
"""

import re
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path

from gateway.config.data.files import create_private, read_regular, replace_private
from gateway.domain.errors import ConfigError, OwnerMustAct, explained
from gateway.secrets.encryption import Keyring, MasterKey

KEY_VALUE = re.compile(r"[!-&(-\[\]-~]+")
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

    Raises `ConfigError` for a value that can't be a key, and if the folder can't be written.
    """
    for variable, value in keys.items():
        if not KEY_VALUE.fullmatch(value):
            raise ConfigError(f"the value of {variable} has spaces, quotes or line breaks; copy it again")
    path = data / "keys" / f"{name}.env"
    with explained(f"{path}: cannot be written", ConfigError):
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(path, "".join(f"{variable}='{value}'\n" for variable, value in keys.items()).encode())


def check_unset(environ: Mapping[str, str], keys: Mapping[str, str], others: Iterable[str] = ()) -> None:
    """Raise `OwnerMustAct` if a variable would beat what is to be saved: another value of a key, or one of `others`."""
    taken = [name for name, value in keys.items() if environ.get(name) not in (None, "", value)]
    if taken := [*taken, *others]:
        raise OwnerMustAct(f"{taken[0]} is set in the environment, which overrides saved values; change it there")


MASTER_KEY_FILE = "master-key"
MASTER_KEY_VARIABLES = ("SUPACLAW_MASTER_KEY", "SUPACLAW_MASTER_KEY_FILE")


def read_keyring(data: Path, environ: Mapping[str, str]) -> Keyring:
    """The master keys, maybe none; raises `OwnerMustAct` for an invalid or unreadable one."""
    text, path = (environ.get(name) or "" for name in MASTER_KEY_VARIABLES)
    if text:
        return Keyring.parse(text)
    place = Path(path) if path else data / "keys" / MASTER_KEY_FILE
    try:
        return Keyring.parse(read_regular(place).decode("ascii"))
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError) and not path:
            return Keyring()
        raise OwnerMustAct(f"the master key in {place} cannot be read: check the file and its rights") from error


def master_key_variable(environ: Mapping[str, str]) -> str | None:
    """The variable that sets the master key, which then can't be changed here."""
    return next((name for name in MASTER_KEY_VARIABLES if environ.get(name)), None)


def has_master_key(data: Path, environ: Mapping[str, str]) -> bool:
    """Whether there is a master key."""
    return master_key_variable(environ) is not None or (data / "keys" / MASTER_KEY_FILE).exists()


def make_keyring(data: Path) -> Keyring:
    """The master key in the file, created if needed; concurrent callers get the same one."""
    create_private(data / "keys" / MASTER_KEY_FILE, Keyring((MasterKey.fresh(),)).text.encode())
    return read_keyring(data, {})


def write_keyring(data: Path, keys: Keyring) -> None:
    """Replace the file atomically and durably."""
    replace_private(data / "keys" / MASTER_KEY_FILE, keys.text.encode())
