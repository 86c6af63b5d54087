"""Everything the gateway knows, in one file, while it goes on working."""

import asyncio
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from pydantic import JsonValue

from gateway.app.archive.config_text import as_text, placed_anywhere, without_secrets
from gateway.app.archive.files import Say, add_file, add_tree
from gateway.app.archive.manifest import CONFIG, FORMAT, KEYS, PRINCIPALS, WORKSPACE, Dumped, Manifest, table_member
from gateway.app.archive.names import NOT_KEYS
from gateway.app.archive.place import check_finished, reached
from gateway.app.archive.writing import ArchiveWriter, appearing
from gateway.config.environment import Environment
from gateway.config.load import read
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct
from gateway.store.dump import Snapshot, snapshot


@dataclass(frozen=True, slots=True)
class Backup:
    """What is in the file now."""

    manifest: Manifest
    size: int
    skipped: int
    """Pipes, sockets, devices, and links that lead out of their folder."""


async def back_up(
    environment: Environment, config: Config, path: Path, *, force: bool, with_secrets: bool, say: Say
) -> Backup:
    """Write an archive to `path`, whole or not at all; raises `OwnerMustAct` if that cannot be.

    Files come first: what they knew of a conversation is then in the snapshot of the database as well.
    """
    path = _target(environment, config, path, force=force)
    raw, left_out = _config(environment, config, with_secrets=with_secrets)
    async with reached(environment, config) as database:
        with _disk_explained(path), appearing(path) as file, ArchiveWriter(file, path.parent) as writer:
            skipped = await asyncio.to_thread(_add_files, writer, environment, raw, say, with_secrets=with_secrets)
            async with snapshot(database) as seen:
                tables = [await _add_table(writer, seen, place, say) for place in range(len(seen.tables))]
            manifest = Manifest(
                format=FORMAT,
                id=uuid4().hex,
                program=version("supaclaw"),
                schema_number=seen.schema,
                created=datetime.now(UTC),
                postgres=seen.server,
                secrets=with_secrets,
                left_out=tuple(left_out),
                tables=tuple(tables),
                counters=seen.counters,
                members=tuple(writer.members),
            )
            await asyncio.to_thread(writer.close, manifest)
    return Backup(manifest, path.stat().st_size, skipped)


def _target(environment: Environment, config: Config, path: Path, *, force: bool) -> Path:
    path = path.resolve()
    if path.exists() and not force:
        raise OwnerMustAct(f"{path} is there already: choose another name, or replace it with --force")
    if path.is_dir() or not path.parent.is_dir():
        raise OwnerMustAct(f"{path} cannot be written: name a file in a folder that exists")
    for root in (environment.workspace, environment.data / PRINCIPALS):
        if path.is_relative_to(root.resolve()):
            raise OwnerMustAct(f"{path} lies in what is backed up: choose a place outside {root}")
    if config.database.url is None and not (environment.data / "postgres").is_dir():
        raise OwnerMustAct(f"there is no gateway in {environment.data} to back up; is SUPACLAW_DATA right?")
    check_finished(environment.data)
    return path


def _config(
    environment: Environment, config: Config, *, with_secrets: bool
) -> tuple[Mapping[str, JsonValue] | None, list[str]]:
    text = read(environment.config)
    if text is None:
        return None, []
    raw = placed_anywhere(text)
    return (raw, []) if with_secrets else without_secrets(raw, config)


def _add_files(
    writer: ArchiveWriter,
    environment: Environment,
    raw: Mapping[str, JsonValue] | None,
    say: Say,
    *,
    with_secrets: bool,
) -> int:
    if raw is not None:
        writer.add(CONFIG, io.BytesIO(as_text(raw)))
    if with_secrets:
        for key in sorted((environment.data / KEYS).glob("*")):
            if key.is_file() and not key.is_symlink() and not key.name.startswith(NOT_KEYS):
                add_file(writer, key, f"{KEYS}/{key.name}")
    skipped = add_tree(writer, environment.workspace, WORKSPACE, say)
    return skipped + add_tree(writer, environment.data / PRINCIPALS, PRINCIPALS, say)


async def _add_table(writer: ArchiveWriter, seen: Snapshot, place: int, say: Say) -> Dumped:
    table = seen.tables[place]
    with writer.spool() as spool:
        rows = await seen.copy(table, spool)
        say(f"database: {table.name}, {rows} rows ({place + 1} of {len(seen.tables)} tables)")
        await asyncio.to_thread(writer.add, table_member(table.name), spool)
    return Dumped(name=table.name, columns=table.columns, rows=rows)


@contextmanager
def _disk_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OwnerMustAct(f"the backup to {path} broke off: {error.strerror or error}; nothing was written") from error
