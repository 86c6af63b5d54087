"""Everything the gateway knows, in one file, while it goes on working."""

import asyncio
import io
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from gateway.app.archive.config_text import saved_config
from gateway.app.archive.logins import add_logins
from gateway.app.archive.manifest import CONFIG, KEYS, MANIFEST, NOT_KEYS, PRINCIPALS, WORKSPACE, Manifest, table_member
from gateway.app.archive.place import check_finished
from gateway.app.archive.record import record
from gateway.app.archive.writing import ArchiveWriter, writing
from gateway.app.resolving import leak_guard
from gateway.config.environment import Environment
from gateway.config.load import read
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct
from gateway.store.connection.pool import Database
from gateway.store.dump import Snapshot, Table, snapshot


async def back_up(
    environment: Environment,
    config: Config,
    path: Path,
    reached: AbstractAsyncContextManager[Database],
    *,
    force: bool,
    with_secrets: bool,
    environ: Mapping[str, str] | None = None,
) -> Manifest:
    """Write an archive to `path`, whole or not at all; raises `OwnerMustAct` if that cannot be.

    With `environ`, which may give the master key, live secrets in texts become references, unless it is `with_secrets`.
    Files come first: what they knew of a conversation is then in the snapshot of the database as well.
    """
    path = _checked(environment, config, path, force=force)
    text = read(environment.config)
    saved, left_out = (None, ()) if text is None else saved_config(text, config, with_secrets=with_secrets)
    async with reached as database:
        with writing(path) as writer:
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
            told = io.BytesIO(manifest.model_dump_json(indent=1).encode())
            await asyncio.to_thread(writer.add, MANIFEST, told)
    record(environment.data, path, manifest.created)
    return manifest


def _checked(environment: Environment, config: Config, path: Path, *, force: bool) -> Path:
    path = path.resolve()
    if path.exists() and not force:
        raise OwnerMustAct(f"{path} already exists: choose another name, or replace it with --force")
    if path.is_dir() or not path.parent.is_dir():
        raise OwnerMustAct(f"{path} cannot be written: name a file in a folder that exists")
    for root in (environment.workspace, environment.data / PRINCIPALS):
        if path.is_relative_to(root.resolve()):
            raise OwnerMustAct(f"{path} is inside what is backed up: choose a place outside {root}")
    if config.database.url is None and not (environment.data / "postgres").is_dir():
        raise OwnerMustAct(f"there is no gateway in {environment.data} to back up; is SUPACLAW_DATA right?")
    check_finished(environment.data)
    return path


def _add_files(writer: ArchiveWriter, environment: Environment, saved: bytes | None, *, with_secrets: bool) -> None:
    if saved is not None:
        writer.add(CONFIG, io.BytesIO(saved))
    if with_secrets:
        writer.add_tree(environment.data / KEYS, KEYS, without=NOT_KEYS)
        add_logins(writer, environment.data)
    writer.add_tree(environment.workspace, WORKSPACE)
    writer.add_tree(environment.data / PRINCIPALS, PRINCIPALS)


async def _add_table(writer: ArchiveWriter, seen: Snapshot, table: Table) -> int:
    with writer.spool() as spool:
        rows = await seen.copy(table, spool)
        await asyncio.to_thread(writer.add, table_member(table), spool)
    return rows
