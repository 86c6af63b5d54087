"""The passwords of the embedded server, made once and kept in files that only the gateway's user can read."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from gateway.config.data.files import create_private, read_regular
from gateway.domain.errors import OwnerMustAct

CURE = "put the old files back, or restore a backup into another data folder"


@dataclass(frozen=True, slots=True)
class Passwords:
    """One for the server's superuser, one for the role that the gateway works as, one for that of members' tools."""

    superuser: str = field(repr=False)
    role: str = field(repr=False)
    members: str = field(repr=False)


def read_passwords(folder: Path, *, make: bool = False) -> Passwords:
    """The passwords kept in `folder`; raises `OSError` for one that is gone, unless it is to be made.

    A new one would not fit the cluster. Only that of members is made at any time: a cluster of before has none.
    """
    return Passwords(
        _password(folder / "postgres.superuser", make=make),
        _password(folder / "postgres.supaclaw", make=make),
        _password(folder / "postgres.supaclaw_member", make=True),
    )


def _password(path: Path, *, make: bool) -> str:
    if make and not path.is_file():
        create_private(path, secrets.token_urlsafe(32).encode())
    password = read_regular(path, 100).decode("ascii", "replace").strip()
    if not password.isprintable() or not password.isascii() or not password:
        raise OwnerMustAct(f"{path} is damaged: {CURE}")
    return password
