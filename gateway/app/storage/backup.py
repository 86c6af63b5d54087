"""Backups: everything the gateway knows in one tar file, written while it runs; and the list of past backups."""

import asyncio
import io
import json
import os
import re
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import IO, BinaryIO
from uuid import uuid4

from pydantic import JsonValue

from gateway.app.storage.database import has_database
from gateway.app.storage.manifest import (
    CHANNELS,
    CONFIG,
    KEYS,
    MANIFEST,
    NOT_KEYS,
    PRINCIPALS,
    WORKSPACE,
    Manifest,
    Member,
    Tar,
    stays_inside,
    table_member,
)
from gateway.app.storage.offline import leak_guard
from gateway.app.storage.restore import check_restore_finished
from gateway.config.channels import channel_names, parse_channel, settings_model
from gateway.config.data.files import error_type, sync_to_disk
from gateway.config.editing.hidden import is_secret
from gateway.config.environment import Environment
from gateway.config.load import is_reference, parse_json, read
from gateway.config.model import Config
from gateway.config.problems import dotted
from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import KeyPath, map_texts
from gateway.logs import SecretMask
from gateway.store.connection.pool import Database
from gateway.store.dump import DatabaseSnapshot, Table, snapshot
from gateway.workspace.files.access import TEMPORARY_PREFIX
from gateway.workspace.files.disk import mostly_holes
from gateway.workspace.files.paths import MAX_LEVELS

_LEVEL = 4
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ArchiveWriter:
    """Adds entries to a tar, one after another. Not thread-safe."""

    def __init__(self, tar: Tar, scratch: Path) -> None:
        self._tar = tar
        self._scratch = scratch
        self.members: list[Member] = []
        self.clean: Callable[[str], str] | None = None
        """Removes live secrets from the entries."""
        self.replaced = 0
        """The number of lines that held a secret."""
        self.skipped = 0
        """The number of skipped entries.

        Skipped are pipes, sockets, devices, sparse files, paths that are too deep, and links that leave their folder.
        """

    def spool(self) -> BinaryIO:
        """A temporary file beside the archive, for content whose size is known only at its end."""
        return tempfile.TemporaryFile(dir=self._scratch)

    def add(self, name: str, content: IO[bytes]) -> None:
        """Add a file."""
        info = tarfile.TarInfo(name)
        info.mode, info.mtime = 0o600, int(time.time())
        self._put(info, content)

    def add_tree(self, root: Path, name: str, without: tuple[str, ...] = (TEMPORARY_PREFIX,)) -> None:
        """Add everything below `root` as `name/…`, links as links, except names that begin like one of `without`.

        Other processes may write there meanwhile: each file is added as it is at that moment, a deleted file is left
        out.
        """
        if not root.is_dir():
            return
        root = root.resolve()
        for place, folders, files, descriptor in os.fwalk(root, onerror=_unless_gone):
            inside = "/".join((name, *Path(place).relative_to(root).parts))
            folders.sort()
            if inside.count("/") > MAX_LEVELS:
                self.skipped += len(folders)
                folders.clear()
            for entry in sorted(folders + files):
                if not entry.startswith(without):
                    with suppress(FileNotFoundError):
                        self._add_entry(descriptor, entry, f"{inside}/{entry}")

    def _add_entry(self, folder: int, entry: str, name: str) -> None:
        status = os.stat(entry, dir_fd=folder, follow_symlinks=False)
        info = tarfile.TarInfo(name)
        info.mode, info.mtime = status.st_mode & 0o777, int(status.st_mtime)
        if stat.S_ISREG(status.st_mode):
            with open(os.open(entry, _FILE, dir_fd=folder), "rb") as file, self.spool() as spool:
                if mostly_holes(file.fileno(), os.fstat(file.fileno())):
                    self.skipped += 1
                    return
                shutil.copyfileobj(file, spool)
                self._put(info, spool)
            return
        if stat.S_ISLNK(status.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(entry, dir_fd=folder)
        elif stat.S_ISDIR(status.st_mode):
            info.type = tarfile.DIRTYPE
        if info.isreg() or (info.issym() and not stays_inside(name, info.linkname)):
            self.skipped += 1
        else:
            self._put(info, None)

    def _cleaned(self, content: IO[bytes], clean: Callable[[str], str]) -> IO[bytes]:
        cleaned = self.spool()
        for line in content:
            text = line.decode("latin-1")  # latin-1 maps each byte to one character
            self.replaced += (new := clean(text)) != text
            cleaned.write(new.encode("latin-1"))
        return cleaned

    def _put(self, info: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        if content is not None:
            content.seek(0)
            content = self._cleaned(content, self.clean) if self.clean else content
            info.size = content.seek(0, os.SEEK_END)
            content.seek(0)
        self.members.append(Member.of(info, content))
        if content is not None:
            content.seek(0)
        self._tar.addfile(info, content)
        self._tar.members.clear()


@contextmanager
def archive_at(path: Path) -> Iterator[ArchiveWriter]:
    """Write an archive that appears under its name when it is complete and on disk; only its owner may read it.

    Raises `OwnerMustAct` or `DiskFull` if the archive can't be written or an entry can't be added.
    """
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with open(os.open(draft, _NEW, 0o600), "wb") as file:
            with Tar.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT, compresslevel=_LEVEL) as tar:
                yield ArchiveWriter(tar, path.parent)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_to_disk(path.parent)
    except OSError as error:
        what = ": ".join(str(part) for part in (error.strerror, error.filename) if part)
        raise error_type(error)(f"the backup to {path} failed ({what}); nothing was written") from error
    finally:
        with suppress(OSError):
            os.unlink(draft)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


async def back_up(
    environment: Environment,
    config: Config,
    path: Path,
    reached: AbstractAsyncContextManager[Database],
    *,
    force: bool,
    with_secrets: bool,
    environ: Mapping[str, str] | None = None,
    place: str = "",
) -> Manifest:
    """Write an archive to `path`, completely or not at all; raises `OwnerMustAct` if that fails.

    `place` is where it will be, if not there, for the list of past backups.
    With `environ`, which may contain the master key, references replace live secrets in texts, unless `with_secrets` is
    set. Files come first, so that the later snapshot of the database includes the conversations that they mention.
    """
    path = _checked_path(environment, config, path, force=force)
    text = read(environment.config)
    saved, left_out = (None, ()) if text is None else saved_config(text, config, with_secrets=with_secrets)
    async with reached as database:
        with archive_at(path) as writer:
            if environ is not None and not with_secrets:
                writer.clean = await leak_guard(database, environment, environ)
            await asyncio.to_thread(_add_files, writer, environment, saved, with_secrets=with_secrets)
            async with snapshot(database) as seen:
                rows = [await _add_table(writer, seen, table) for table in seen.tables]
            manifest = Manifest(
                id=uuid4().hex,
                program=version("supaclaw"),
                schema_number=seen.schema,
                created=datetime.now(UTC),
                left_out=left_out,
                skipped=writer.skipped,
                replaced=writer.replaced,
                tables=seen.tables,
                rows=sum(rows),
                counters=seen.counters,
                members=tuple(writer.members),
            )
            await asyncio.to_thread(writer.add, MANIFEST, io.BytesIO(manifest.model_dump_json(indent=1).encode()))
    record_backup(environment.data, place or path, manifest.created)
    return manifest


def _checked_path(environment: Environment, config: Config, path: Path, *, force: bool) -> Path:
    path = path.resolve()
    if path.exists() and not force:
        raise OwnerMustAct(f"{path} already exists: choose another name, or replace it with --force")
    if path.is_dir() or not path.parent.is_dir():
        raise OwnerMustAct(f"{path} cannot be written: name a file in a folder that exists")
    for root in (environment.workspace, environment.data / PRINCIPALS):
        if path.is_relative_to(root.resolve()):
            raise OwnerMustAct(f"{path} is inside what is backed up: choose a place outside {root}")
    if not has_database(environment, config):
        raise OwnerMustAct(f"there is no gateway in {environment.data} to back up; is SUPACLAW_DATA right?")
    check_restore_finished(environment.data)
    return path


def _add_files(writer: ArchiveWriter, environment: Environment, saved: bytes | None, *, with_secrets: bool) -> None:
    if saved is not None:
        writer.add(CONFIG, io.BytesIO(saved))
    if with_secrets:
        writer.add_tree(environment.data / KEYS, KEYS, without=NOT_KEYS)
        add_logins(writer, environment.data)
    writer.add_tree(environment.workspace, WORKSPACE)
    writer.add_tree(environment.data / PRINCIPALS, PRINCIPALS)


async def _add_table(writer: ArchiveWriter, seen: DatabaseSnapshot, table: Table) -> int:
    with writer.spool() as spool:
        rows = await seen.copy(table, spool)
        await asyncio.to_thread(writer.add, table_member(table), spool)
    return rows


def saved_config(text: str, config: Config, *, with_secrets: bool) -> tuple[bytes, tuple[str, ...]]:
    """The text of config.json for the archive, and the keys whose values it leaves out.

    It leaves out the database's address, which the target machine decides. A reference to an unset variable replaces
    each secret: it keeps a gateway from starting with half a configuration, and its name says what is missing.
    """
    raw = parse_json(text)
    database = raw.get("database")
    if isinstance(database, dict):
        database.pop("url", None)
    left_out: list[str] = []
    if not with_secrets:
        raw = _without_secrets(raw, config, left_out)
    return (json.dumps(raw, indent=2, ensure_ascii=False) + "\n").encode(), tuple(left_out)


def _without_secrets(raw: dict[str, JsonValue], config: Config, left_out: list[str]) -> dict[str, JsonValue]:
    mask = SecretMask()
    mask.learn(config)
    for name in config.channels.keys() & channel_names():
        mask.learn(parse_channel(name, config.channels[name], settings_model(name)))

    def cleared(path: KeyPath, text: str) -> str:
        if is_reference(text) or not (is_secret(path, text) or mask.text(text) != text):
            return text
        left_out.append(dotted(path))
        return "$env:NOT_IN_BACKUP_" + re.sub(r"\W+", "_", dotted(path), flags=re.ASCII).strip("_").upper()

    return {key: map_texts(value, cleared, (key,)) for key, value in raw.items()}


def add_logins(writer: ArchiveWriter, data: Path) -> None:
    """Add the `backup_files` of the channels' modules. Not for the process that runs the channels.

    Each module gives names and how to read each file, in the order of reading; files deleted meanwhile are left out.
    """
    for name in channel_names():
        folder = data / CHANNELS / name
        if not folder.is_dir():
            continue
        for file, read_whole in getattr(import_module(f"channels.{name}"), "backup_files", lambda _: ())(folder):
            with suppress(FileNotFoundError):
                writer.add(f"{CHANNELS}/{name}/{file}", io.BytesIO(read_whole()))


_LINE = "{:%Y-%m-%d %H:%M} UTC {}"


def record_backup(data: Path, place: Path | str, made: datetime) -> None:
    """Record a backup in the list; it is on disk when this returns."""
    with (file := data / "backups.list").open("a", encoding="utf-8", errors="surrogateescape") as lines:
        file.chmod(0o600)
        lines.write(f"{_LINE.format(made, place)}\n")
    sync_to_disk(file)


def recorded_backups(data: Path) -> list[str]:
    """The backups made or restored here, and those of upgrades, oldest first."""
    lines = list[str]()
    with suppress(FileNotFoundError):
        lines = (data / "backups.list").read_text("utf-8", "surrogateescape").splitlines()
    for path in (data / "backups").glob("*.tar.gz"):
        if not any(line.endswith(f" {path}") for line in lines):
            lines.append(_LINE.format(datetime.fromtimestamp(path.stat().st_mtime, UTC), path))
    return sorted(lines)
