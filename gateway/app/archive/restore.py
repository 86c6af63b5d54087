"""An archive put back: into an empty place, all of it, once, and so that a broken-off restore can be finished."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gateway.app.archive.files import Say
from gateway.app.archive.manifest import CONFIG, DATABASE, KEYS, PRINCIPALS, WORKSPACE, Manifest
from gateway.app.archive.place import beginning, end, reached
from gateway.app.archive.reading import Broken, Entry, entries, opened, verify
from gateway.app.archive.settle import tell_about_doubts
from gateway.app.archive.unpacking import unpack
from gateway.app.archive.writing import PIECE, appearing
from gateway.config.environment import Environment
from gateway.config.instance import hold_instance
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct
from gateway.store.loading import Loading, loading, occupied, restored_from, schema_of
from gateway.store.migrate import migrate, read_migrations
from gateway.store.pool import Database

_LONGEST_CONFIG = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back."""

    manifest: Manifest
    config: Path | None
    """Where its config.json lies now; beside the one in force, if there was one."""
    doubts: int
    """Chats that are told that an answer may be missing."""


def examine(path: Path) -> Manifest:
    """Read all of an archive and write nothing; raises `OwnerMustAct` if it is damaged or too new for this program."""
    with opened(path) as file:
        return _readable(verify(file))


async def restore(environment: Environment, config: Config, path: Path, say: Say) -> Restored:
    """Put an archive back; raises `OwnerMustAct` if there is no room for it, before anything is changed.

    What breaks it off leaves a mark in the data folder: the same command goes on, and no gateway starts before.
    """
    with opened(path) as file:
        say(f"checking {path}")
        manifest = _readable(await asyncio.to_thread(verify, file))
        with hold_instance(environment.data), beginning(environment, manifest.id, path) as begun:
            async with reached(environment, config) as database:
                loaded = not begun.first and await restored_from(database) == manifest.id
                if not loaded:
                    await _require_empty(database, manifest)
                begun.changed = True
                text = await _Filling(environment, manifest, file, say).fill(database, loaded=loaded)
                doubts = await tell_about_doubts(database)
            written = await asyncio.to_thread(_write_config, environment.config, text)
            await asyncio.to_thread(end, environment)
    return Restored(manifest, written, doubts)


def _readable(manifest: Manifest) -> Manifest:
    newest = len(read_migrations())
    if manifest.schema_number > newest:
        raise OwnerMustAct(
            f"SupaClaw {manifest.program} wrote this backup (schema {manifest.schema_number}, this one knows "
            f"{newest}): update SupaClaw"
        )
    return manifest


async def _require_empty(database: Database, manifest: Manifest) -> None:
    """Raise `OwnerMustAct` unless the rows can be loaded."""
    if (table := await occupied(database)) is not None:
        raise OwnerMustAct(
            f"the database is not empty (there are rows in {table}): name another in database.url, or drop its schema "
            "`supaclaw`"
        )
    if await schema_of(database) > manifest.schema_number:
        raise OwnerMustAct("the database was set up by a later SupaClaw than the backup: drop its schema `supaclaw`")


class _Filling:
    """One way through the archive, from files to rows, with the hashes compared once more."""

    def __init__(self, environment: Environment, manifest: Manifest, file: BinaryIO, say: Say) -> None:
        self._environment = environment
        self._manifest = manifest
        self._entries = entries(file)
        self._members = iter(manifest.members)
        self._say = say
        self._config: bytes | None = None

    async def fill(self, database: Database, *, loaded: bool) -> bytes | None:
        """Put everything into its place but config.json, which is returned."""
        await asyncio.to_thread(self._unpack_all)
        if not loaded:
            await migrate(database, upto=self._manifest.schema_number)
            async with loading(database) as load:
                for place in range(len(self._manifest.tables)):
                    await self._load(load, place)
                await load.finish(self._manifest.counters, self._manifest.id)
        await migrate(database)
        return self._config

    def _unpack_all(self) -> None:
        """The files: all that comes before the first table."""
        count = sum(not member.name.startswith(f"{DATABASE}/") for member in self._manifest.members)
        for number in range(count):
            entry = next(self._entries)
            self._unpack(entry)
            self._compare(entry)
            self._say(f"files: {number + 1} of {count}")

    def _unpack(self, entry: Entry) -> None:
        tree, *parts = entry.name.split("/")
        if tree == CONFIG:
            self._config = entry.content.read(_LONGEST_CONFIG)
            return
        data = self._environment.data
        roots = {WORKSPACE: self._environment.workspace, PRINCIPALS: data / PRINCIPALS, KEYS: data / KEYS}
        unpack(entry, roots[tree], tuple(parts))

    async def _load(self, load: Loading, place: int) -> None:
        told = self._manifest.tables[place]
        self._say(f"database: {told.name}, {told.rows} rows ({place + 1} of {len(self._manifest.tables)} tables)")
        entry = await asyncio.to_thread(next, self._entries)
        if await load.copy(told.table, _pieces(entry)) != told.rows:
            raise Broken(f"{told.name} has not as many rows as it had")
        self._compare(entry)

    def _compare(self, entry: Entry) -> None:
        if entry.member() != next(self._members):
            raise Broken(f"{entry.name!r} changed while it was read")


async def _pieces(entry: Entry) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(entry.content.read, PIECE):
        yield piece


def _write_config(path: Path, text: bytes | None) -> Path | None:
    """Where nothing is, or beside what is in force on this machine."""
    if text is None:
        return None
    if path.is_file() and path.read_bytes() == text:
        return path
    target = path.with_name("config.restored.json") if path.exists() else path
    target.parent.mkdir(parents=True, exist_ok=True)
    with appearing(target) as file:
        file.write(text)
    return target
