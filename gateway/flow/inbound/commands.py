"""Slash commands: effect, reply and `handled_at` are committed together, on a lane of their own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from gateway.commands import Command, CommandContext, CommandReply, CommandServices
from gateway.config.failpoints import Step
from gateway.domain.channels.channel import Button
from gateway.domain.channels.routing import parse_command
from gateway.domain.conversation.transcript import Notice
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import InboxId, SessionId, TaskId
from gateway.domain.principals import Label, Role
from gateway.flow.approvals import render_questions
from gateway.flow.engine import Engine
from gateway.flow.live import LiveEvent, MessageStored, SessionReplaced
from gateway.flow.outbound.sender import Outbound
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses, inbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.inbox import InboxRow
from gateway.store.errors import reaching
from gateway.store.people import principals
from gateway.store.transcript import messages, sessions
from gateway.store.work import tasks

Events: TypeAlias = tuple[tuple[SessionId, LiveEvent], ...]
Effect: TypeAlias = Callable[[Connection, AddressRow, InboxRow], Awaitable[CommandReply]]

NOT_TAKEN = "Commands don't take files, so the attachment wasn't stored; send it again without the command."

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """The steps of this process after the effect is committed."""

    cancelled: tuple[TaskId, ...] = ()
    events: Events = ()
    admission: bool = False
    processes_of: SessionId | None = None
    """The session whose processes end."""


@dataclass
class CommandRunner:
    """Runs stored slash commands; a running turn never blocks them."""

    engine: Engine
    commands: Mapping[str, Command]
    services: CommandServices
    outbound: Outbound

    def __post_init__(self) -> None:
        self._started_at = self.engine.clock.now()
        self._interrupted: dict[InboxId, SessionId] = {}

    async def resume(self) -> None:
        """Run the commands that a crash or a database outage interrupted."""
        left = await self.engine.database.read(inbox.open_commands)
        for arrival in left:
            await self.run(arrival)

    async def retry(self) -> None:
        """Retry commands that met a database outage, or whose gateway died, until cancelled."""
        while True:
            await self.engine.signals.commands.wait()
            self.engine.signals.commands.clear()
            await self.engine.clock.sleep(1.0)
            try:
                await self.resume()
            except TryAgainLater:
                self.engine.signals.commands.set()

    async def run(self, arrival: InboxId) -> bool:
        """Run one stored command, once; False while the database is unavailable. A failing command replies so."""
        self.engine.failpoints.reach(Step.COMMAND_ACCEPTED)
        try:
            done = await self._committed(arrival)
            if done.admission:
                await self.engine.people.refresh(self.engine.database)
        except TryAgainLater:
            self.engine.signals.commands.set()
            return False
        self._interrupted.pop(arrival, None)
        self.engine.failpoints.reach(Step.COMMAND_COMMITTED)
        self.engine.signals.cancelled.publish(done.cancelled)
        if done.processes_of:
            self.services.processes.kill_all(done.processes_of)
        for session, event in done.events:
            self.engine.live.publish(session, event)
        self.engine.signals.outbox.set()
        return True

    async def _committed(self, arrival: InboxId) -> Done:
        try:
            return await self.engine.database.run(lambda tx: self._commit(tx, arrival, self._effect))
        except TryAgainLater:
            raise
        except Exception:  # a broken command must not stop its channel
            session = self._interrupted.get(arrival)
            log.exception("command.failed", inbox_id=arrival, session_id=session and str(session))
            with reaching():  # this reply has nothing of the command's own
                return await self.engine.database.run(lambda tx: self._commit(tx, arrival, _failure))

    async def _commit(self, tx: Connection, arrival: InboxId, effect: Effect) -> Done:
        row = await inbox.get(tx, arrival)
        at = await addresses.lock_joined(tx, row.address_id)
        await sessions.lock(tx, at.session_id)
        if not await inbox.still_open(tx, arrival):
            return self._done_before(row, at)
        self._interrupted[arrival] = at.session_id
        reply = await effect(tx, at, row)
        session = reply.successor or at.session_id
        moved: Events = () if reply.successor is None else ((at.session_id, SessionReplaced(reply.successor)),)
        if reply.asked is not None:
            await tasks.create_chat(tx, at.principal_id, session, self.engine.instance)
            await inbox.mark_handled(tx, arrival, reply.asked)
            return Done(events=(*moved, (session, MessageStored(reply.asked))))
        if reply.unfinished is not None:
            label = await sessions.label(tx, session)
            await messages.say(tx, session, at.principal_id, reply.unfinished, label=label, origin="agent")
        label, kept, sent = Label.OWNER, reply.text, reply.text
        buttons: Sequence[Button] = ()
        if reply.question is not None:
            label, (kept, sent, buttons) = reply.question.label, render_questions([reply.question])
            kept = sent if await sessions.label(tx, session) >= label else kept
        if row.files:
            kept, sent = f"{kept}\n\n{NOT_TAKEN}", f"{sent}\n\n{NOT_TAKEN}"
        notice = await messages.say(tx, session, at.principal_id, Notice(kept), label=label, address=at.id)
        sent = f"{sent}\n\n{reply.secret}" if reply.secret else sent
        await self.outbound.put(tx, at, notice.id, sent, buttons=buttons)
        await inbox.mark_handled(tx, arrival, notice.id)
        told = (*moved, (session, MessageStored(notice.id)))
        return Done(reply.cancelled, told, reply.admission, at.session_id if reply.ends_processes else None)

    def _done_before(self, row: InboxRow, at: AddressRow) -> Done:
        """Its effect was committed, but not published."""
        left = self._interrupted.get(row.id, at.session_id)
        moved: Events = () if left == at.session_id else ((left, SessionReplaced(at.session_id)),)
        said: Events = () if row.message_id is None else ((at.session_id, MessageStored(row.message_id)),)
        return Done(events=(*moved, *said))

    async def _effect(self, tx: Connection, at: AddressRow, row: InboxRow) -> CommandReply:
        name, argument = parse_command(row.text)
        role = (await principals.get(tx, at.principal_id)).role if row.as_owner else Role.MEMBER
        context = CommandContext(
            tx=tx,
            at=at,
            role=role,
            argument=argument,
            arrival=row,
            clock=self.engine.clock,
            started_at=self._started_at,
            commands=self.commands,
            services=self.services,
            written=self.engine.live.written(at.session_id) or "",
        )
        command = self.commands[name]
        if command.allows(context):
            try:
                return await command.run(context)
            except command.refusals as refusal:
                return CommandReply(str(refusal))
        if at.address.by_token:
            return CommandReply(
                f"Tokens can't do this; write /{name} in your messenger, on the page or in the terminal."
            )
        return CommandReply(f"Only the owner can use /{name}, in a private chat.")


async def _failure(_tx: Connection, _at: AddressRow, _row: InboxRow) -> CommandReply:
    return CommandReply("That command failed and changed nothing; the log says why.")
