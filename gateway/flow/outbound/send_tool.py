"""The agent's way to write to its person on another channel, and to send files."""

import asyncio

from gateway.domain.conversation.tools import Caller, ToolFailed
from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.text import marks
from gateway.flow.outbound.parts import record_file
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses
from gateway.store.delivery.addresses import AddressRow
from gateway.store.files import attachments, files
from gateway.store.files.files import FileRow
from gateway.store.transcript import sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import tasks
from gateway.tools import Post, Posted
from gateway.workspace.files.disk import Written, measure
from gateway.workspace.files.tree import Workspace

MAX_FILE = 100_000_000
"""Bytes, for a channel without a limit of its own, or one that is closed."""


class SendTool:
    """Stores a message in the session of one of a principal's addresses and has it sent there."""

    def __init__(self, database: Database, proactive: ProactiveMessages) -> None:
        self._runs = database
        self._proactive = proactive

    def of(self, database: Database, principal: PrincipalId, workspace: Workspace, own: Label) -> Post:
        """The tool of one principal. `database` has only rows they may read; `own` is the label of their own words."""

        async def post(text: str, to: str | None, path: str | None, caller: Caller) -> Posted:
            heading = await self._heading(caller, own)
            at = await self._chosen(database, principal, to.lower() if to else None)
            file = await self._measured(workspace, path, at) if path is not None else None
            of = await workspace.labels.of(file.path, file.sha256) if file else Label.OWNER
            row = await database.run(lambda tx: self._store(tx, at, text, file, of, heading))
            self._proactive.committed(row)
            return Posted(at.channel, row.id)

        return post

    async def _heading(self, caller: Caller, own: Label) -> str:
        """The heading of a message of this run; "" for a chat. Raises `ToolFailed` if the run may send nothing."""
        async with self._runs.connection() as conn:
            run, asked = await tasks.get(conn, caller.task), await tasks.payload(conn, caller.task)
        if run is None or run.kind == "chat":
            return ""
        if asked.get("deliver") is False:
            raise ToolFailed.own(
                "no_delivery", "This run may send nothing: it came with deliver_to none. Answer instead."
            )
        return marks.heading(str(asked.get("name", run.kind)), caller.label, own)

    async def _chosen(self, database: Database, principal: PrincipalId, to: str | None) -> AddressRow:
        async with database.connection() as conn:
            at = await addresses.last_spoken_at(conn, principal, to)
            known = [] if at else await addresses.channels(conn, principal)
        if at is None:
            where = f"Channels with a chat: {', '.join(known)}." if known else "There is no chat anywhere yet."
            raise ToolFailed.own("no_such_chat", f"Nobody has written on {to} yet. {where}" if to else where)
        return at

    async def _measured(self, workspace: Workspace, path: str, at: AddressRow) -> Written:
        channel = self._proactive.outbound.channel(at)
        most = channel.capabilities.max_file if channel else MAX_FILE
        if not most:
            raise ToolFailed.own("no_files", f"{at.channel} takes no files; send a message that says where it is.")
        file = await asyncio.to_thread(measure, workspace.root, path, most)
        if not file.size:
            raise ToolFailed.own("empty", f"{file.path} is empty, and messengers refuse empty files.")
        return file

    async def _store(
        self, tx: Connection, at: AddressRow, text: str, file: Written | None, of: Label, heading: str
    ) -> MessageRow:
        """The message, its file with the label `of`, and its outbox rows, in one transaction."""
        principal = at.principal_id
        # The file's name and description are in the prompts of the chat from now on.
        label = max(await sessions.label_at_work(tx, principal), of)
        enclosed = await _known(tx, principal, file, of) if file else None
        said = AssistantText(text or (f"[{enclosed.path}]" if enclosed else ""))
        ids = [enclosed.id] if enclosed else []
        row = await self._proactive.say(
            tx, at, principal, said, label=label, origin="agent", sent=text, files=ids, heading=heading
        )
        if enclosed:
            await attachments.add_kept(tx, principal, row.id, at.channel, [enclosed.announced])
        return row


async def _known(tx: Connection, principal: PrincipalId, file: Written, label: Label) -> FileRow:
    """The row of a file; a new one if its contents have changed."""
    known = await files.get(tx, principal, file.path)
    return known if known is not None and known.sha256 == file.sha256 else await record_file(tx, principal, file, label)
