"""Backups: everything the gateway knows in one file, written while it runs; and the list of past backups."""

import asyncio
import io
import json
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from pydantic import JsonValue

from gateway.app.storage.archive import ArchiveWriter, archive_at
from gateway.app.storage.manifest import (
    CHANNELS,
    CONFIG,
    KEYS,
    MANIFEST,
    NOT_KEYS,
    PRINCIPALS,
    WORKSPACE,
    Manifest,
    table_member,
)
from gateway.app.storage.offline import leak_guard
from gateway.app.storage.staging import check_restore_finished
from gateway.config.channels import channel_names, parse_channel, settings_model
from gateway.config.data.files import sync_to_disk
from gateway.config.editing.hidden import is_secret, map_texts
from gateway.config.environment import Environment
from gateway.config.load import is_reference, parse_json, read
from gateway.config.model import Config
from gateway.config.problems import KeyPath, dotted
from gateway.domain.errors import OwnerMustAct
from gateway.logs import SecretMask
from gateway.store.connection.pool import Database
from gateway.store.dump import DatabaseSnapshot, Table, snapshot


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
    """Write an archive to `path`, completely or not at all; raises `OwnerMustAct` if that fails.

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
            told = io.BytesIO(manifest.model_dump_json(indent=1).encode())
            await asyncio.to_thread(writer.add, MANIFEST, told)
    record_backup(environment.data, path, manifest.created)
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
    if config.database.url is None and not (environment.data / "postgres").is_dir():
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


def record_backup(data: Path, path: Path, made: datetime) -> None:
    """Record a backup in the list; it is on disk when this returns."""
    with (file := data / "backups.list").open("a", encoding="utf-8", errors="surrogateescape") as lines:
        file.chmod(0o600)
        lines.write(f"{_LINE.format(made, path)}\n")
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
