"""Posting: what the agent says of its own accord, in the chats of the person it works for and nowhere else."""

import asyncio

from gateway.domain.ids import FileId, PrincipalId
from gateway.domain.tools import ToolFailed
from gateway.domain.transcript import AssistantText
from gateway.flow.enclosures import kept
from gateway.flow.live import Live, MessageStored
from gateway.flow.outbound import Outbound
from gateway.store import addresses, attachments, files, messages, sessions
from gateway.store.addresses import AddressRow
from gateway.store.messages import MessageRow
from gateway.store.pool import Connection, Database
from gateway.tools import Post, Posted
from gateway.workspace.measure import measure
from gateway.workspace.paths import WorkspaceError
from gateway.workspace.tree import Workspace, Written

MAX_FILE = 100_000_000
"""Bytes, where a channel has no limit of its own, or is shut."""


class Posting:
    """Stores a message in the session of one of a principal's addresses and has it sent there."""

    def __init__(self, database: Database, outbound: Outbound, live: Live) -> None:
        self._database = database
        self._outbound = outbound
        self._live = live

    def bound(self, database: Database) -> "Posting":
        """The same on this store: it holds what its principal may reach."""
        return Posting(database, self._outbound, self._live)

    def of(self, principal: PrincipalId, workspace: Workspace) -> Post:
        """For this principal alone."""

        async def post(text: str, to: str | None, path: str | None) -> Posted:
            at = await self._chosen(principal, to.lower() if to else None)
            file = await self._measured(workspace, path, at) if path is not None else None
            row = await self._database.run(lambda tx: self._store(tx, principal, at, text, file))
            self._live.publish(row.session_id, MessageStored(row.id))
            self._outbound.wake()
            return Posted(at.channel, row.id)

        return post

    async def _chosen(self, principal: PrincipalId, to: str | None) -> AddressRow:
        async with self._database.connection() as conn:
            at = await addresses.last_spoken_at(conn, principal, to)
            known = [] if at else await addresses.channels(conn, principal)
        if at is None:
            where = f"Channels with a chat: {', '.join(known)}." if known else "There is no chat anywhere yet."
            raise ToolFailed("no_such_chat", f"Nobody has written on {to} yet. {where}" if to else where)
        return at

    async def _measured(self, workspace: Workspace, path: str, at: AddressRow) -> Written:
        channel = self._outbound.channel(at)
        most = channel.capabilities.max_file if channel else MAX_FILE
        if not most:
            raise ToolFailed("no_files", f"{at.channel} takes no files; send a message that says where it is.")
        try:
            file = await asyncio.to_thread(measure, workspace.root, path, most)
        except WorkspaceError as error:
            raise ToolFailed(error.code, str(error)) from error
        if not file.size:
            raise ToolFailed("empty", f"{file.path} is empty, and messengers refuse empty files.")
        return file

    async def _store(
        self, tx: Connection, principal: PrincipalId, chosen: AddressRow, text: str, file: Written | None
    ) -> MessageRow:
        """One transaction: the message, its file, its outbox rows."""
        at = await addresses.lock_by_id(tx, chosen.id)
        if at.principal_id != principal:
            raise ToolFailed("no_such_chat", "That chat belongs to somebody else now; nothing was sent.")
        await sessions.lock(tx, at.session_id)
        label = await sessions.label_at_work(tx, principal)
        await sessions.taint(tx, at.session_id, label)
        said = AssistantText(text or (f"[{file.path}]" if file else ""), final=False)
        row = await messages.say(tx, at.session_id, principal, said, label=label, origin="agent", address=at.id)
        enclosed = [await self._linked(tx, at, row, file)] if file else []
        await self._outbound.put(tx, at, row.id, text, files=enclosed)
        return row

    async def _linked(self, tx: Connection, at: AddressRow, row: MessageRow, file: Written) -> FileId:
        """The file as a part of the message; what is known of it already stays known."""
        known = await files.get(tx, at.principal_id, file.path)
        if known is None or known.sha256 != file.sha256:
            known = await kept(tx, at.principal_id, file, row.label)
        await attachments.link(tx, at.principal_id, row.id, at.channel, known)
        return known.id
