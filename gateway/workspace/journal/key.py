"""The key that signs the journal's entries: made once, never shown."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from gateway.config.files import clear_way, read_regular
from gateway.domain.errors import OwnerMustAct
from gateway.workspace.atomic import new_file
from gateway.workspace.descent import open_folder

KEY_BYTES = 32


def journal_key(path: Path) -> bytes:
    """The key, made at first use; raises `OwnerMustAct` when the file holds something else."""
    if not path.is_file():
        clear_way(path)
        _make(path)
    key = read_regular(path)
    if len(key) != KEY_BYTES:
        raise OwnerMustAct(f"{path} is damaged; restore it from a backup, or remove it to distrust the old journals")
    return key


def _make(path: Path) -> None:
    """Linked into place when it is on disk, so that a crash or a second process never leaves half a key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    with open_folder(path.parent, ()) as folder:
        try:
            with new_file(folder, beside.name, 0o600) as file:
                file.write(secrets.token_bytes(KEY_BYTES))
            with suppress(FileExistsError):
                os.link(beside, path)
        finally:
            beside.unlink(missing_ok=True)
        os.fsync(folder)
