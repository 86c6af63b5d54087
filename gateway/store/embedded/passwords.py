"""The passwords of the embedded server, made once and kept in files that only the gateway's user can read."""

import os
import secrets
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway.config.files import clear_way, read_regular


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
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Passwords(
        _password(folder / "postgres.superuser", make=make),
        _password(folder / "postgres.supaclaw", make=make),
        _password(folder / "postgres.supaclaw_member", make=True),
    )


def _password(path: Path, *, make: bool) -> str:
    """Written beside and linked into place: two processes that make it at once get the same one."""
    if make and not path.is_file():
        clear_way(path)
        descriptor, draft = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(draft, path)
        os.unlink(draft)
    return read_regular(path, 100).decode()
