"""Where the master key of the secrets is: a variable, the file that a variable names, else `keys/master-key`."""

from collections.abc import Mapping
from pathlib import Path

from gateway.config.data.durable import make_once, replace_private
from gateway.config.data.files import read_regular
from gateway.domain.errors import OwnerMustAct
from gateway.secrets.master import Keyring, MasterKey

FILE = "master-key"
VARIABLES = ("SUPACLAW_MASTER_KEY", "SUPACLAW_MASTER_KEY_FILE")


def read_keyring(data: Path, environ: Mapping[str, str]) -> Keyring:
    """The keys, none if there is none; raises `OwnerMustAct` for what is no key."""
    text, path = (environ.get(name) or "" for name in VARIABLES)
    if text:
        return Keyring.parse(text)
    place = Path(path) if path else data / "keys" / FILE
    try:
        return Keyring.parse(read_regular(place).decode("ascii"))
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError) and not path:
            return Keyring()
        raise OwnerMustAct(f"the master key in {place} cannot be read: check the file and its rights") from error


def given_by(environ: Mapping[str, str]) -> str | None:
    """The variable that gives the key, so that it is not ours to change."""
    return next((name for name in VARIABLES if environ.get(name)), None)


def has_key(data: Path, environ: Mapping[str, str]) -> bool:
    """Whether there may be secrets that can be opened here."""
    return given_by(environ) is not None or (data / "keys" / FILE).exists()


def make_keyring(data: Path) -> Keyring:
    """The key in the file, a new one if there is none: two that make it at once get the same."""
    make_once(data / "keys" / FILE, Keyring((MasterKey.fresh(),)).text.encode())
    return read_keyring(data, {})


def write_keyring(data: Path, keys: Keyring) -> None:
    """Replace the file; a crash leaves the old one or the new one, on disk."""
    replace_private(data / "keys" / FILE, keys.text.encode())
