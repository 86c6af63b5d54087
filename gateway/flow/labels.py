"""Labels of files: who wrote the contents of a workspace, and how a person vouches for them."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

from cachetools import LRUCache

from gateway.domain.conversation.tools import ToolClass
from gateway.domain.ids import InstanceId, PrincipalId
from gateway.domain.json import Json
from gateway.domain.people.access import is_group
from gateway.domain.principals import Label
from gateway.domain.text.texts import first_of
from gateway.domain.time import Clock
from gateway.store.connection.pool import Connection, Database
from gateway.store.files import contents, files
from gateway.store.people import principals
from gateway.store.transcript import journals
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewQuestion
from gateway.workspace.files.access import TEMPORARY_PREFIX
from gateway.workspace.files.disk import Written, measure, walk
from gateway.workspace.files.pages import MOST
from gateway.workspace.files.paths import READ_ONLY, WorkspaceError, WorkspacePath
from gateway.workspace.files.tree import Labels
from gateway.workspace.files.uploads import UPLOADS
from gateway.workspace.journal.files import INDEX
from gateway.workspace.template import template_hashes

MAX_TRUSTED_REMEMBERED = 4_096


@dataclass(slots=True)
class ContentLabels(Labels):
    """The `Labels` of a workspace; `own` is the label of its person, `harmless` are hashes of template texts.

    A label belongs to the content, not to its path. Content without a label was written by the person's own editor,
    unless it lies in the folder of uploads.
    """

    database: Database
    principal: PrincipalId
    own: Label
    harmless: Set[str]
    unverified: Callable[[str], bool]
    """Whether a journal may have been changed since the gateway wrote it."""
    instance: InstanceId
    """The process that runs the commands."""
    _trusted: LRUCache[str, None] = field(default_factory=lambda: LRUCache(MAX_TRUSTED_REMEMBERED), init=False)
    """Hashes of trusted contents; vouching is never revoked."""
    _commands: int = field(default=0, init=False)
    """Running commands that other people may have caused."""

    async def of(self, path: str, sha256: str) -> Label:
        """As in `Labels`; a journal has its session's label."""
        where = WorkspacePath.parse(path)
        if where.read_only:
            if self.unverified(str(where)):
                return Label.UNTRUSTED
            async with self.database.connection() as conn:
                found = await journals.label(conn, self.principal, str(where), index=str(where) == INDEX)
            return Label.UNTRUSTED if found is None else found
        if sha256 in self.harmless or sha256 in self._trusted:
            return self.own
        label = await self.database.run(lambda tx: self._seen(tx, where, sha256))
        if label <= self.own:
            self._trusted[sha256] = None
        return label

    async def _seen(self, tx: Connection, where: WorkspacePath, sha256: str) -> Label:
        known = await contents.label(tx, self.principal, sha256)
        if known is not None:
            return known
        if _incoming(where) or where.name.startswith(TEMPORARY_PREFIX):
            return Label.UNTRUSTED
        await contents.note(tx, self.principal, sha256, self.own, "owner")
        return self.own

    async def of_names(self, folder: str) -> Label:
        """As in `Labels`: the sender of a file chooses its name."""
        where = WorkspacePath.parse(folder)
        if where.read_only:
            return self.own
        if _incoming(where):
            return Label.UNTRUSTED
        async with self.database.connection() as conn:
            return await files.names_label(conn, self.principal, f"{where}/" if where.parts else "")

    async def less_trusted(self, hashes: Collection[str]) -> Mapping[str, Label]:
        """As in `Labels`."""
        return await self.database.read(lambda conn: contents.less_trusted(conn, self.principal, hashes, self.own))

    async def begin_command(self, hashes: Collection[str]) -> None:
        """As in `Labels`, in one transaction."""

        async def work(tx: Connection) -> None:
            if not self._commands and self.principal not in await contents.with_older(tx):
                await contents.add(tx, self.principal, hashes, self.own, "owner")
            await contents.begin_command(tx, self.principal, self.instance)

        await self.database.run(work)
        self._commands += 1

    async def end_command(self, hashes: Collection[str]) -> None:
        """As in `Labels`; the last of several commands ends the doubt."""
        self._commands -= 1

        async def work(tx: Connection) -> None:
            await contents.add(tx, self.principal, hashes, Label.UNTRUSTED, "agent")
            if not self._commands:
                await contents.end_commands(tx, self.principal, self.instance)

        await self.database.run(work)

    async def note_change(self) -> None:
        """As in `Labels`."""
        await self.database.run(lambda tx: contents.note_change(tx, self.principal))

    async def last_change(self) -> tuple[str, bool]:
        """As in `Labels`."""
        instance = self.instance if self._commands else None
        return await self.database.read(lambda conn: contents.last_change(conn, self.principal, instance))

    async def note(self, file: Written, label: Label, mime: str) -> None:
        """As in `Labels`, in one transaction."""
        label = max(self.own, label)

        async def work(tx: Connection) -> None:
            await contents.note(tx, self.principal, file.sha256, label, "agent")
            if mime:
                path, size, sha256, own = file.path, file.size, file.sha256, files.OWN
                await files.keep(tx, self.principal, path, size=size, mime=mime, sha256=sha256, label=label, origin=own)

        await self.database.run(work)


def owner_labels(database: Database, owner: PrincipalId) -> ContentLabels:
    """The labels of the owner's files outside of a gateway, where journals can't be verified."""
    return ContentLabels(database, owner, Label.OWNER, template_hashes(), lambda _path: True, InstanceId(uuid4()))


def _incoming(where: WorkspacePath) -> bool:
    return bool(where.parts) and where.parts[0].casefold() == UPLOADS


VOUCH = "vouch_files"
"""The stored call that an approval runs, with `paths`: hashes by path."""
MAX_FILES_SHOWN = 60
"""Files named in one question."""


async def vouch(tx: Connection, principal: PrincipalId, paths: Mapping[str, str], label: Label) -> None:
    """Give exactly these contents (hashes by path) the label of the person who vouches for them."""
    for sha256 in paths.values():
        await contents.note(tx, principal, sha256, label, "owner")


async def ask_to_vouch(tx: Connection, principal: PrincipalId, paths: Mapping[str, str], clock: Clock) -> None:
    """Ask the person whether they wrote these contents, unless they were asked before or soon will be."""
    arguments: dict[str, Json] = {"paths": dict(paths)}
    what = (VOUCH, arguments, _vouching_preview(paths), Label.UNTRUSTED)
    question = ReviewQuestion(principal, principal, *what, lasts=None, act=ToolClass.PERSIST)
    if principal not in await contents.with_older(tx) and not await reviews.was_asked(tx, question):
        await reviews.ask(tx, question, clock.now())


def _vouching_preview(paths: Mapping[str, str]) -> str:
    """The question, with instruction files first."""
    ordered = sorted(paths, key=lambda path: (not WorkspacePath.parse(path).is_instructions, path))
    lines = first_of([f"- {path}" for path in ordered], MAX_FILES_SHOWN, "- and {:,} more")
    return "\n".join(
        [
            "I can't tell who wrote these files. Until you vouch for them, I follow none of them, and a conversation "
            "that reads one is treated as if a stranger wrote in it, and asks you before any lasting change:",
            *lines,
            "If they're yours, say yes, then /new; to pick single files, run `supaclaw files vouch PATH`.",
        ]
    )


async def expect_older(database: Database, principal: PrincipalId, root: Path) -> None:
    """Prepare the return of files without labels, as from a backup: files here now are the person's own, later ones are
    untrusted until `list_older` has seen them.
    """
    here = await asyncio.to_thread(_hashes, root)

    async def work(tx: Connection) -> None:
        if principal not in await contents.with_older(tx):
            await contents.add(tx, principal, here.values(), Label.OWNER, "owner")
        await contents.expect_older(tx, principal)

    await database.run(work)


async def list_older(database: Database, root: Callable[[PrincipalId], Path], clock: Clock) -> None:
    """Label the files that are older than labels or came from a backup, and ask once who wrote them.

    `root` is the folder of a person's files.
    """
    waiting = await database.read(contents.with_older)
    for principal in waiting:
        found = await asyncio.to_thread(_hashes, root(principal))
        await database.run(partial(_list_older, principal=principal, found=found, clock=clock))


async def _list_older(tx: Connection, principal: PrincipalId, found: Mapping[str, str], clock: Clock) -> None:
    unlabelled = await contents.add(tx, principal, found.values(), Label.UNTRUSTED, "before")
    await contents.listed_older(tx, principal)
    asked = {path: sha256 for path, sha256 in found.items() if sha256 in unlabelled}
    identities = await principals.identities(tx, principal)
    if asked and not is_group(identities):  # nobody is asked in a group
        await ask_to_vouch(tx, principal, asked, clock)


def _has_its_label(parts: tuple[str, ...]) -> bool:
    return len(parts) == 1 and parts[0].casefold() in {*READ_ONLY, UPLOADS}


def _hashes(root: Path) -> dict[str, str]:
    """The hash of every file a tool can read, by path, without uploads, journals and template texts."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for each in walk(root, _has_its_label, lambda *_: None):
            with suppress(WorkspaceError, OSError):
                file = measure(root, each.path, MOST)
                found[file.path] = file.sha256
    harmless = template_hashes()
    return {path: sha256 for path, sha256 in found.items() if sha256 not in harmless}
