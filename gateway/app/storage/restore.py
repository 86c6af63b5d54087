"""Restores an archive completely into an empty place; an interrupted restore can be repeated."""

import asyncio
import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.app.storage.manifest import (
    CHANNELS,
    CONFIG,
    KEYS,
    MANIFEST,
    NOT_KEYS,
    PIECE,
    PRINCIPALS,
    WORKSPACE,
    Manifest,
    Member,
    Tar,
    stays_inside,
    table_member,
)
from gateway.config.data.instance import hold_instance
from gateway.config.environment import Environment
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct
from gateway.flow.outbound.parts import send_notice
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses
from gateway.store.dump import addresses_in_doubt, lacks_rows, load
from gateway.store.files import contents
from gateway.store.migrate import migrate
from gateway.store.transcript import sessions
from gateway.workspace.files.access import open_folder
from gateway.workspace.files.paths import READ_ONLY
from gateway.workspace.template import is_reserved

_STAGING = "restore.unfinished"
_HARMLESS = frozenset({"gateway.pid", "lost+found"})


def check_restore_finished(data: Path) -> None:
    """Raise `OwnerMustAct` if a restore into this data folder was interrupted: a gateway must not run on half of it."""
    if (data / _STAGING).exists():
        raise OwnerMustAct(f"a restore into {data} was interrupted: finish it with the same `supaclaw restore FILE`")


@dataclass(slots=True)
class Staging:
    """The empty staging folder in the data folder, and the state of its restore."""

    folder: Path
    resumed: bool
    """Whether an earlier restore was interrupted here; then the files in the target folders come from it."""
    begun: bool = False
    """Whether anything outside the staging folder has been changed."""


@contextmanager
def staging(environment: Environment) -> Iterator[Staging]:
    """Hold the staging folder until the restore is complete; after `begun`, an interrupted restore must be repeated.

    Raises `OwnerMustAct` that says what is in the way. The caller holds the instance.
    """
    mark = environment.data / _STAGING
    stage = Staging(mark / "unpacked", resumed=mark.exists())
    try:
        if not stage.resumed:
            _check_room(environment)
        shutil.rmtree(stage.folder, ignore_errors=True)
        stage.folder.mkdir(mode=0o700, parents=True)
        yield stage
    except BaseException as error:
        if not (stage.resumed or stage.begun):
            shutil.rmtree(mark, ignore_errors=True)
        if isinstance(error, OSError):
            raise OwnerMustAct(f"the restore failed ({error}); fix that and restore again") from error
        raise
    os.sync()
    shutil.rmtree(mark)


def put_in_place(environment: Environment, unpacked: Path) -> Path | None:
    """Move the unpacked files into place; return the new path of config.json."""
    data = environment.data
    roots = {WORKSPACE: environment.workspace} | {name: data / name for name in (PRINCIPALS, KEYS, CHANNELS)}
    for name, root in roots.items():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for entry in _entries(unpacked / name, apart=name == WORKSPACE):
            if name != KEYS or not entry.name.startswith(NOT_KEYS):
                _put(entry, root / entry.relative_to(unpacked / name))
    return _put_config(unpacked / CONFIG, environment.config)


def _entries(folder: Path, *, apart: bool) -> Iterator[Path]:
    """Yield the paths that move as one. `apart`: yields the contents of folders that may be separate mounts."""
    for entry in folder.glob("*"):
        if apart and entry.name in READ_ONLY and entry.is_dir() and not entry.is_symlink():
            yield from entry.glob("*")
        else:
            yield entry


def _put_config(saved: Path, target: Path) -> Path | None:
    """Move config.json to its place if that is free, else beside it; return its path, None if there is none."""
    if not saved.exists():
        return None
    if target.exists() and target.read_bytes() != saved.read_bytes():
        target = target.with_name("config.restored.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    _put(saved, target)
    return target


def _put(source: Path, target: Path) -> None:
    """Move a file, link or folder, also between disks, and replace what an unfinished restore left there."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    shutil.move(source, target)


def _check_room(environment: Environment) -> None:
    for folder, variable in ((environment.workspace, "SUPACLAW_WORKSPACE"), (environment.data, "SUPACLAW_DATA")):
        with suppress(FileNotFoundError):
            for name in sorted(set(os.listdir(folder)) - _HARMLESS):
                if folder / name != environment.workspace and not is_reserved(folder / name):
                    raise OwnerMustAct(
                        f"{folder} is not empty (it holds {name}): move it away, or name another folder in {variable}"
                    )


RESTORED = "I was restored from a backup and cannot tell whether my last answer arrived; /last shows it again."


async def restore(
    environment: Environment, config: Config, path: Path, reached: AbstractAsyncContextManager[Database]
) -> tuple[Manifest, Path | None]:
    """Restore an archive; return its manifest and the path of its config.json, beside an existing one.

    Raises `OwnerMustAct` before any change if the archive can't be used or there is no room for it. An interrupted
    restore leaves its staging folder: the same command repeats it, and no gateway starts before that.
    """
    with hold_instance(environment.data), staging(environment) as stage:
        manifest = await asyncio.to_thread(unpack, path, stage.folder)
        stage.begun = config.database.url is None  # the next step creates an embedded server
        async with reached as database:
            await _fill(database, manifest, stage)
            await database.run(contents.expect_older)
            await database.run(_note_uncertain_answers)
        return manifest, await asyncio.to_thread(put_in_place, environment, stage.folder)


async def _fill(database: Database, manifest: Manifest, stage: Staging) -> None:
    missing = await lacks_rows(database, manifest.schema_number, unless=manifest.id if stage.resumed else None)
    stage.begun = True
    if missing:
        await migrate(database, upto=manifest.schema_number)
        files = {table: stage.folder / table_member(table) for table in manifest.tables}
        await load(database, files, manifest.counters, manifest.id)
    await migrate(database)


async def _note_uncertain_answers(tx: Connection) -> None:
    """Add one notice to each chat whose answers were being sent; a repeated restore adds none."""
    for address in await addresses_in_doubt(tx):
        at = await addresses.lock_by_id(tx, address)
        await sessions.lock(tx, at.session_id)
        await send_notice(tx, at, RESTORED, len(RESTORED))


def unpack(path: Path, into: Path | None) -> Manifest:
    """Read a whole archive, either into an empty folder or only to check it.

    Raises `OwnerMustAct` if it has changed since it was saved; then don't use the files in `into`.
    """
    try:
        with gzip.open(path) as plain, Tar.open(fileobj=plain, mode="r|", bufsize=PIECE) as tar:
            manifest = _unpack(tar, into)
            while plain.read(PIECE):  # at the end gzip verifies its checksum
                pass
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError) as error:
        raise OwnerMustAct(f"{path} is not a complete SupaClaw backup ({error}); use another copy of it") from error
    except OSError as error:
        raise OwnerMustAct(f"{error.filename or path} cannot be read or written: {error.strerror}") from error
    return manifest


def _unpack(tar: Tar, into: Path | None) -> Manifest:
    found: list[Member] = []
    links: list[tarfile.TarInfo] = []
    while (info := tar.next()) is not None:
        tar.members.clear()
        if info.name == MANIFEST and (content := tar.extractfile(info)) is not None:
            manifest = Manifest.read(content.read())
            if changed := {*manifest.members} ^ {*found}:
                raise ValueError(f"{min(member.name for member in changed)!r} has changed since it was saved")
            if into is not None:
                _link(links, into)
            return manifest
        if info.issym() and stays_inside(info.name, info.linkname):
            links.append(info)
            found.append(Member.of(info, None))
        elif info.isreg() or info.isdir():
            found.append(_measured(tar, info, into))
        else:
            raise ValueError(f"it holds {info.name!r}, which does not belong there")
    raise ValueError("it has no manifest")


def _measured(tar: Tar, info: tarfile.TarInfo, into: Path | None) -> Member:
    content = tar.extractfile(info)
    if into is None:
        return Member.of(info, content)
    path = _place(info.name, into)
    if content is None:
        path.mkdir(parents=True, exist_ok=True)
        return Member.of(info, None)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        shutil.copyfileobj(content, file, PIECE)
    os.utime(path, (info.mtime, info.mtime))
    path.chmod(info.mode & 0o755 | 0o600)
    with path.open("rb") as written:
        return Member.of(info, written)


def _place(name: str, into: Path) -> Path:
    """The entry's place. `into` has no links yet, so a name without `..` can't leave it."""
    parts = name.strip("/").split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        raise ValueError(f"it holds {name!r}, which does not belong there")
    return into.joinpath(*parts)


def _link(links: list[tarfile.TarInfo], into: Path) -> None:
    """Create the links last, each in a real folder, so that no entry is ever written through a link."""
    for info in links:
        *folders, name = info.name.split("/")
        with open_folder(into, tuple(folders)) as folder:
            os.symlink(info.linkname, name, dir_fd=folder)
