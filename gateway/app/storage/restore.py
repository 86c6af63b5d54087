"""Restores an archive completely into an empty place; an interrupted restore can be repeated."""

import asyncio
import gzip
import os
import shutil
import tarfile
import zlib
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from gateway.app.storage.manifest import MANIFEST, PIECE, Manifest, Member, Tar, stays_inside, table_member
from gateway.app.storage.staging import Staging, put_in_place, staging
from gateway.config.data.instance import hold_instance
from gateway.config.environment import Environment
from gateway.config.model import Config
from gateway.domain.conversation.transcript import Notice
from gateway.domain.errors import OwnerMustAct
from gateway.domain.principals import Label
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses, outbox
from gateway.store.delivery.outbox import OutboxPart
from gateway.store.dump import addresses_in_doubt, lacks_rows, load
from gateway.store.files import contents
from gateway.store.migrate import migrate
from gateway.store.transcript import messages, sessions
from gateway.workspace.files.access import open_folder

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
        said = await messages.say(
            tx, at.session_id, at.principal_id, Notice(RESTORED), label=Label.OWNER, address=at.id
        )
        await outbox.put(tx, at.principal_id, at.id, said.id, [OutboxPart(RESTORED)], notice=True)


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
