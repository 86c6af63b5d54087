"""The key that signs the journal's entries: made once, never shown."""

import secrets
from pathlib import Path

from gateway.config.data.files import create_private, read_regular
from gateway.domain.errors import OwnerMustAct

KEY_BYTES = 32


def journal_key(path: Path) -> bytes:
    """The key, made at first use; raises `OwnerMustAct` when the file holds something else."""
    if not path.is_file():
        create_private(path, secrets.token_bytes(KEY_BYTES))
    key = read_regular(path)
    if len(key) != KEY_BYTES:
        raise OwnerMustAct(f"{path} is damaged; restore it from a backup, or remove it to distrust the old journals")
    return key
