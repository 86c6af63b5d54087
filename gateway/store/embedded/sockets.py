"""Unix sockets have short paths: a deep folder gets a short way in."""

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from gateway.domain.errors import OwnerMustAct

SOCKET = ".s.PGSQL.5432"
_LONGEST = 100
"""Bytes; systems allow a socket's path 107 or 103."""


def socket_folder(folder: Path) -> Path:
    """`folder`, or a link to it from a private place when its own path is too long for a socket."""
    if len(os.fsencode(folder / SOCKET)) <= _LONGEST:
        return folder
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    link = _private_folder() / name
    if not link.is_symlink() or link.readlink() != folder:
        draft = link.with_name(f"{name}.{os.getpid()}")
        draft.symlink_to(folder)
        draft.replace(link)
    return link


def _private_folder() -> Path:
    """The same for every process of this user, and closed to all others."""
    folder = Path(tempfile.gettempdir()) / f"supaclaw-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OwnerMustAct(f"{folder} is open to others: remove it, or set SUPACLAW_DATA to a shorter path")
    return folder
