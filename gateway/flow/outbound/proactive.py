"""Proactive messages: sent to a person in one of their own chats without a question, such as notices to the owner.

Also the agent's way to write to its person on another channel, and to send files.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from time import monotonic
from typing import Unpack

import structlog

from gateway.domain.channels.channel import Button
from gateway.domain.conversation.tools import Caller, ToolFailed
from gateway.domain.conversation.transcript import AssistantText, Notice
from gateway.domain.errors import SupaclawError
from gateway.domain.ids import AddressId, PrincipalId, TaskId
from gateway.domain.principals import Label
from gateway.domain.text import marks
from gateway.domain.text.marks import without_headings
from gateway.flow.engine import Engine
from gateway.flow.live import MessageStored
from gateway.flow.outbound.parts import Attachments, record_file
from gateway.flow.outbound.sender import Outbound
from gateway.logs.errors import logged
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses
from gateway.store.delivery.addresses import AddressRow
from gateway.store.files import attachments, files
from gateway.store.files.files import FileRow
from gateway.store.transcript import messages, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import tasks
from gateway.tools import Post, Posted
from gateway.workspace.files.disk import Written, measure
from gateway.workspace.files.tree import Workspace
from gateway.workspace.locks import REPLACED_MARK

MAX_FILE = 100_000_000
"""Bytes, for a channel without a limit of its own, or one that is closed."""

PAGE, TERMINAL = "web", "terminal"
"""Channels that show the transcript itself: the page always, the terminal only while it is open."""


class HandedOver(SupaclawError):
    """The chat belongs to somebody else now; nothing was stored."""

    code = "no_such_chat"


@dataclass(frozen=True, slots=True)
class ProactiveMessages:
    """Stores a message in a chat, so that the person can reply to it; it never starts a turn.

    Lock order: address, session of the chat, session of the run, task, schedule. So a run asks for its `destination`
    first, and locks its own session and task after that.
    """

    engine: Engine
    outbound: Outbound
    configured: Callable[[], Collection[str]]

    @property
    def channels(self) -> set[str]:
        """The channels on which people can be reached."""
        return {PAGE, *self.configured()}

    async def destination(
        self,
        tx: Connection,
        principal: PrincipalId,
        *,
        address: AddressId | None = None,
        channel: str | None = None,
        avoid: AddressId | None = None,
    ) -> AddressRow | None:
        """The chat to send to, locked with its session: `address`, else one on `channel`, else the chat used
        last; the terminal only if there is no other; never `avoid`. None: there is no chat.
        """
        reach = partial(addresses.notification_address, tx, principal, self.channels, TERMINAL)
        while at := await reach(asked=address, channel=channel, avoid=avoid):
            held = await addresses.lock_by_id(tx, at.id)
            if held.principal_id == principal:  # else it was handed over while we waited
                await sessions.lock(tx, held.session_id)
                return held
        return None

    async def say(
        self,
        tx: Connection,
        at: AddressRow,
        principal: PrincipalId,
        entry: AssistantText | Notice,
        *,
        label: Label,
        origin: str = "gateway",
        task: TaskId | None = None,
        sent: str | None = None,
        **more: Unpack[Attachments],
    ) -> MessageRow:
        """Store it in the chat's current session, and queue it, or the shorter text `sent`. Raises `HandedOver`.

        A message of the agent ends no turn, and the session rises to its label. In a private chat each part has the
        `heading`, and the text can't imitate it.
        """
        held = await addresses.lock_by_id(tx, at.id)
        if held.principal_id != principal:
            raise HandedOver("That chat now belongs to someone else; nothing was sent.")
        await sessions.lock(tx, held.session_id)
        said: AssistantText | Notice = entry
        shown = entry.text if sent is None else sent
        trusts = held.private and isinstance(entry, AssistantText)  # a group trusts nothing
        heading = more["heading"] = more.get("heading", "") if trusts else ""
        if heading:
            said, shown = replace(entry, text=f"{heading}\n\n{without_headings(entry.text)}"), without_headings(shown)
        if isinstance(said, AssistantText):  # a model doesn't read notices
            await sessions.taint(tx, held.session_id, label)
            said = replace(said, final=False)
        row = await messages.say(
            tx, held.session_id, principal, said, label=label, origin=origin, address=held.id, task=task
        )
        await self.outbound.put(tx, held, row.id, shown, **more)
        return row

    def committed(self, row: MessageRow) -> None:
        """Publish a message that was stored, and wake the sender."""
        self.engine.live.publish(row.session_id, MessageStored(row.id))
        self.engine.signals.outbox.set()

    async def notify(self, principal: PrincipalId, notice: Notice, buttons: Sequence[Button] = ()) -> MessageRow | None:
        """Send a notice to the person's chat; None if there is none."""

        async def work(tx: Connection) -> MessageRow | None:
            at = await self.destination(tx, principal)
            if at is None:
                return None
            return await self.say(tx, at, principal, notice, label=Label.OWNER, buttons=buttons)

        row = await self.engine.database.run(work)
        if row is not None:
            self.committed(row)
        return row


TAMPERED_NOTICE_SECONDS = 3600.0
_RESTORED = (
    "A tool changed locked text in {}. It has been put back, byte for byte. What stood there is in the data folder, "
    "under replaced/."
)
_PUT_ASIDE = "A command made instructions for the agent. They are not followed, but renamed; look at them in {}."

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Notices:
    """Sends notices to the chat that the owner used last."""

    proactive: ProactiveMessages
    _tampered: dict[tuple[PrincipalId, str], float] = field(default_factory=dict)

    async def tampered(self, principal: PrincipalId, paths: Sequence[str]) -> None:
        """Report what a tool did that `LockKeeper.check` has undone, at most once an hour for each file."""
        now, keys = monotonic(), {path: (principal, path.partition(REPLACED_MARK)[0]) for path in paths}
        told = [path for path in paths if now > self._tampered.get(keys[path], -inf) + TAMPERED_NOTICE_SECONDS]
        self._tampered.update({keys[path]: now for path in told})
        log.warning("locks.tampered", principal=str(principal), files=list(paths))
        whose = "" if principal == self.proactive.engine.people.owner.id else f" of {principal}"
        for text, made in ((_RESTORED, False), (_PUT_ASIDE, True)):
            if found := [path for path in told if (REPLACED_MARK in path) is made]:
                with logged(log, "locks.not_told"):  # the tool's run must continue
                    await self.tell_owner(text.format(f"{', '.join(found)}{whose}"))

    async def tell_owner(self, text: str, buttons: tuple[Button, ...] = ()) -> None:
        """Send a notice to the owner; without a chat it is only logged."""
        owner = self.proactive.engine.people.owner.id
        if not await self.proactive.notify(owner, Notice(text), buttons):
            log.warning("owner.unreachable", notice=text)


@dataclass(frozen=True, slots=True)
class SendTool:
    """Stores a message in the session of one of a principal's addresses and has it sent there."""

    proactive: ProactiveMessages

    def of(self, database: Database, principal: PrincipalId, workspace: Workspace, own: Label) -> Post:
        """The tool of one principal. `database` has only rows they may read; `own` is the label of their own words."""

        async def post(text: str, to: str | None, path: str | None, caller: Caller) -> Posted:
            heading = await self._heading(caller, own)
            at = await self._chosen(database, principal, to.lower() if to else None)
            file = await self._measured(workspace, path, at) if path is not None else None
            of = await workspace.labels.of(file.path, file.sha256) if file else Label.OWNER
            row = await database.run(lambda tx: self._store(tx, at, text, file, of, heading))
            self.proactive.committed(row)
            return Posted(at.channel, row.id)

        return post

    async def _heading(self, caller: Caller, own: Label) -> str:
        """The heading of a message of this run; "" for a chat. Raises `ToolFailed` if the run may send nothing."""
        async with self.proactive.engine.database.connection() as conn:
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
        channel = self.proactive.outbound.channel(at)
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
        row = await self.proactive.say(
            tx, at, principal, said, label=label, origin="agent", sent=text, files=ids, heading=heading
        )
        if enclosed:
            await attachments.add_kept(tx, principal, row.id, at.channel, [enclosed.announced])
        return row


async def _known(tx: Connection, principal: PrincipalId, file: Written, label: Label) -> FileRow:
    """The row of a file; a new one if its contents have changed."""
    known = await files.get(tx, principal, file.path)
    return known if known is not None and known.sha256 == file.sha256 else await record_file(tx, principal, file, label)
