"""Backups that the gateway makes by itself, in a folder or encrypted in a bucket, and how one is fetched from there."""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from glob import glob
from pathlib import Path
from typing import BinaryIO

from gateway.app.storage.backup import back_up
from gateway.app.storage.offline import StoredSecrets
from gateway.config.data.files import error_type
from gateway.config.data.keys import read_keyring
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.model import Config
from gateway.domain.errors import DiskFull, OwnerMustAct, SupaclawError
from gateway.domain.time import Clock
from gateway.net.addresses import Rules
from gateway.net.object_store import ObjectStore, StoreAddress
from gateway.secrets.encryption import SEALED, Keyring, seal_file, unseal_file
from gateway.store.connection.pool import Database

_NAME = "supaclaw-%Y-%m-%dT%H%M%SZ.tar.gz"
_SEALED = ".sealed"
_NAMED = re.compile(r"supaclaw-\d{4}-\d\d-\d\dT\d{6}Z\.tar\.gz(\.sealed)?")
_EVER = datetime.max.replace(tzinfo=UTC)
_BUCKET = "s3://"
_NO_KEY = (
    "a backup in a bucket is encrypted with the master key, and there is none yet: store a secret by "
    "`supaclaw secrets set NAME`, and keep the recovery key that it shows"
)


def _bucket(config: Config) -> AbstractContextManager[ObjectStore | None]:
    """The bucket of `backup.to`, closed after the block; None if that is a folder."""
    if not (config.backup.to or "").startswith(_BUCKET):
        return nullcontext()
    return closing(ObjectStore(StoreAddress.of(config.backup), lambda: Rules.of(config.net.private_allow)))


async def _kept(folder: Path, bucket: ObjectStore | None) -> list[str]:
    """The names of the backups there, oldest first."""
    names = glob("*", root_dir=folder)
    if bucket is not None:
        names = [name async for batch in bucket.names(_EVER) for name in batch]
    return sorted(filter(_NAMED.fullmatch, names))


def _rewrite(source: Path, target: Path, rewrite: Callable[[BinaryIO, BinaryIO], None]) -> None:
    with source.open("rb") as read, target.open("xb") as written:
        rewrite(read, written)


@dataclass(slots=True)
class ScheduledBackup:
    """A backup whenever the newest in `backup.to` is older than `backup.every`, whatever restarts."""

    environment: Environment
    config: Callable[[], Config]
    database: Database
    tell_owner: Callable[[str], Awaitable[None]]
    clock: Clock
    _failed: bool = field(default=False, init=False)

    async def look(self) -> datetime | None:
        """Back up if it is due; return when it is due next. Raises `SupaclawError`, told once until it works again."""
        config = self.config()
        if config.backup.every is None or config.backup.to is None:
            return None
        try:
            with _bucket(config) as bucket:
                kept, now = await _kept(folder := Path(config.backup.to), bucket), self.clock.now()
                made = datetime.strptime(kept[-1].removesuffix(_SEALED), _NAME) if kept else datetime.min
                if (due := made.replace(tzinfo=UTC) + config.backup.every) <= now:
                    await self._back_up(config, folder / now.strftime(_NAME), bucket)
                    for old in kept[: len(kept) + 1 - config.backup.keep]:
                        await bucket.delete(old) if bucket else (folder / old).unlink()
                    due = now + config.backup.every
        except SupaclawError as error:
            if not self._failed:
                await self.tell_owner(f"The scheduled backup failed: {error}")
            self._failed = True
            raise
        self._failed = False
        return due

    async def _back_up(self, config: Config, file: Path, bucket: ObjectStore | None) -> None:
        save = partial(back_up, self.environment, config, force=True, with_secrets=False, environ=os.environ)
        if bucket is None:
            await save(file, nullcontext(self.database))
            return
        if not (keys := read_keyring(self.environment.data, os.environ).keys):
            raise OwnerMustAct(_NO_KEY)
        scratch = self.environment.data / "backup.unsent"
        plain, sealed = scratch / file.name, scratch / f"{file.name}{_SEALED}"
        shutil.rmtree(scratch, ignore_errors=True)  # of one that was killed
        try:
            scratch.mkdir(mode=0o700)
            await save(plain, nullcontext(self.database), place=f"{bucket.address.place}/{sealed.name}")
            await asyncio.to_thread(_rewrite, plain, sealed, partial(seal_file, keys[0]))
            await bucket.put(sealed.name, sealed)
        except OSError as error:
            raise error_type(error)(f"{scratch} cannot be written ({error.strerror})") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def fetched(environment: Environment, source: str, recovery: Keyring | None = None) -> Iterator[Path]:
    """The archive of a backup, which may be in the bucket of `backup.to` (which itself names the newest) or encrypted.

    What is encrypted has been verified as a whole before anything of it is read. Raises `SupaclawError`.
    """
    with tempfile.TemporaryDirectory(prefix="supaclaw-") as folder:
        path, plain = Path(source), Path(folder, "backup.tar.gz")
        try:
            if source.startswith(_BUCKET):
                asyncio.run(_fetch(environment, source, path := Path(folder, "fetched")))
            with path.open("rb") as file:
                sealed = file.read(len(SEALED)) == SEALED
            if sealed:
                _rewrite(path, plain, partial(unseal_file, recovery or read_keyring(environment.data, os.environ)))
            yield plain if sealed else path
        except OSError as error:
            raise error_type(error)(f"{error.filename or source} can't be used: {error.strerror}") from error


async def _fetch(environment: Environment, source: str, to: Path) -> None:
    config = load(environment.config, os.environ, StoredSecrets(environment, os.environ))
    place = config.backup.to or ""
    if not (source == place or source.startswith(f"{place}/")):
        raise OwnerMustAct(f"{source} is not in backup.to of {environment.config}, which names a bucket and its keys")
    with _bucket(config) as bucket:
        assert bucket is not None, "it is where the source is"
        kept, free = await _kept(to.parent, bucket), shutil.disk_usage(to.parent).free
        name = source.removeprefix(place).strip("/") or (kept or [""])[-1]
        if name not in kept:
            raise OwnerMustAct(f"there is no backup {source}; there are: {', '.join(kept) or 'none'}")
        if (await bucket.download(name, free, to))[0] > free:
            raise DiskFull(f"{to.parent} has no room for {source}: name another folder in TMPDIR")
