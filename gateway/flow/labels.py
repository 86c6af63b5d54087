"""Whose words the files of one principal are, as the database knows it."""

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from uuid import uuid4

from gateway.domain.ids import InstanceId, PrincipalId
from gateway.domain.principals import Label
from gateway.store.connection.pool import Connection, Database
from gateway.store.transcript import files, journals
from gateway.store.trust import contents
from gateway.workspace.files.access import TEMPORARY_PREFIX
from gateway.workspace.files.paths import WorkspacePath
from gateway.workspace.files.tree import Labels, Written
from gateway.workspace.files.uploads import UPLOADS
from gateway.workspace.journal.files import INDEX

REMEMBERED = 4_096


@dataclass(slots=True)
class ContentLabels(Labels):
    """The `Labels` of a workspace; `own` is the label of its person, `harmless` are hashes of nobody's words.

    A label belongs to the content, not to its place. What no writer of ours has labelled was put there by the person's
    own editor, unless it lies where only others' files come in.
    """

    database: Database
    principal: PrincipalId
    own: Label
    harmless: Set[str]
    unverified: Callable[[str], bool] = lambda _path: False
    """Whether somebody may have written into a journal while nobody looked."""
    instance: InstanceId = field(default_factory=lambda: InstanceId(uuid4()))
    """The process whose commands these labels are told of."""
    _trusted: set[str] = field(default_factory=set, init=False)
    """Contents that need no look: what was vouched for stays so."""
    _commands: int = field(default=0, init=False)
    """Under way, that others may have caused."""

    async def of(self, path: str, sha256: str) -> Label:
        """As `Labels` says; that of a journal is its session's."""
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
            if len(self._trusted) >= REMEMBERED:
                self._trusted.clear()
            self._trusted.add(sha256)
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
        """As `Labels` says: who sends a file names it, and so does whoever writes one."""
        where = WorkspacePath.parse(folder)
        if where.read_only:
            return self.own
        if _incoming(where):
            return Label.UNTRUSTED
        async with self.database.connection() as conn:
            return await files.names_label(conn, self.principal, f"{where}/" if where.parts else "")

    async def less_trusted(self, hashes: Collection[str]) -> Mapping[str, Label]:
        """As `Labels` says."""
        async with self.database.connection() as conn:
            return await contents.less_trusted(conn, self.principal, hashes, self.own)

    async def begin_command(self, hashes: Collection[str]) -> None:
        """As `Labels` says, in one transaction."""

        async def work(tx: Connection) -> None:
            if not self._commands and self.principal not in await contents.with_older(tx):
                await contents.add(tx, self.principal, hashes, self.own, "owner")
            await contents.begin_command(tx, self.principal, self.instance)

        await self.database.run(work)
        self._commands += 1

    async def end_command(self, hashes: Collection[str]) -> None:
        """As `Labels` says; the last of several ends the time of doubt."""
        self._commands -= 1

        async def work(tx: Connection) -> None:
            await contents.add(tx, self.principal, hashes, Label.UNTRUSTED, "agent")
            if not self._commands:
                await contents.end_commands(tx, self.principal, self.instance)

        await self.database.run(work)

    async def note(self, file: Written, label: Label, mime: str) -> None:
        """As `Labels` says, in one transaction."""
        label = max(self.own, label)

        async def work(tx: Connection) -> None:
            await contents.note(tx, self.principal, file.sha256, label, "agent")
            if mime:
                path, size, sha256 = file.path, file.size, file.sha256
                await files.record(tx, self.principal, path, size=size, mime=mime, sha256=sha256, label=label)

        await self.database.run(work)


def _incoming(where: WorkspacePath) -> bool:
    return bool(where.parts) and where.parts[0].casefold() == UPLOADS
