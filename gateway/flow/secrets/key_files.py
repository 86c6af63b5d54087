"""Key files of the first run become shared secrets: a file goes when all that it holds is sealed and committed."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import structlog

from gateway.config.data.files import sync_to_disk
from gateway.config.data.keys import read_keys
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.flow.secrets.vault import Vault
from gateway.secrets.facts import check_name

log = structlog.get_logger(__name__)


async def import_key_files(vault: Vault, owner: PrincipalId) -> None:
    """Import `keys/*.env`; a value of a file is newer than the stored one only if the file is.

    A kill in between leaves the file, whose values the next start finds stored. What cannot be imported stays.
    """
    for file in sorted((vault.data / "keys").glob("*.env")):
        try:
            await _import(vault, owner, file)
        except OwnerMustAct as error:
            log.warning("secrets.key_file_kept", file=str(file), problem=str(error))


async def _import(vault: Vault, owner: PrincipalId, file: Path) -> None:
    keys, written = await asyncio.to_thread(_read, vault.data, file)
    stored = {each.row.facts.name: each for each in await vault.opened() if each.row.facts.shared}
    for name, value in keys.items():
        known = stored.get(check_name(name))
        if known is None or (known.value not in (None, value) and known.row.changed_at < written):
            await vault.put(owner, name, value, shared=True)
        elif known.value is None:
            raise OwnerMustAct(known.problem)
    await asyncio.to_thread(_remove, vault.data, file, keys)
    log.info("secrets.imported", file=file.name, names=sorted(keys))


def _read(data: Path, file: Path) -> tuple[dict[str, str], datetime]:
    return read_keys(data, file.name), datetime.fromtimestamp(file.stat().st_mtime, UTC)


def _remove(data: Path, file: Path, keys: dict[str, str]) -> None:
    """Unless somebody has saved another one meanwhile."""
    if read_keys(data, file.name) == keys:
        with suppress(FileNotFoundError):
            file.unlink()
        sync_to_disk(file.parent)
