"""The transaction that stores an arrival, or applies one that edits or deletes an earlier message."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from gateway.agent.work.task_trees import top_task
from gateway.domain.channels.routing import Decision, Edit, Ignore, RunCommand, StartTurn, decide
from gateway.domain.conversation import digest
from gateway.domain.conversation.inbound import OWN_CHANNELS, Arrival, Attachment, Earlier, Inbound
from gateway.domain.conversation.transcript import AssistantText, ToolIntent, ToolResult, UserText
from gateway.domain.ids import AddressId, InboxId, InstanceId, MessageId, SessionId
from gateway.domain.principals import Label, Role, label_of
from gateway.domain.text import marks
from gateway.domain.text.texts import one_line
from gateway.domain.work.tasks import Lane
from gateway.flow.engine import Engine
from gateway.flow.journal.journal import Journal
from gateway.flow.outbound.parts import send_notice
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses, inbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.files import attachments, files
from gateway.store.transcript import messages, sessions, tool_calls, unread
from gateway.store.transcript.messages import DELETED, REVISED, MessageRow
from gateway.store.transcript.unread import PlainMessage
from gateway.store.trust import reviews
from gateway.store.work import tasks
from gateway.workspace.journal.files import Place

QUOTED = 4_000
"""Characters of a quoted message."""
ADDED = 20_000
"""Characters of what the platform added to a message."""
MOST_FILES = 50
"""Most files of one message."""
ALBUM_SECONDS = 1.0
"""Seconds between the parts of an album, and of a thought that one of them says goes on."""
FEW_CHARS = 12
"""A file with a text no longer than this is a part of something."""
_POINTS_ON = re.compile(r"(?:[:：]|->|[→↓⬇👇]\ufe0f?)\s*\Z")


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of accepting one message; only a stored one has ids. A spooled one has `later`."""

    decision: Decision
    inbox_id: InboxId | None = None
    address_id: AddressId | None = None
    session_id: SessionId | None = None
    message_id: MessageId | None = None
    duplicate: bool = False
    later: "asyncio.Future[Accepted] | None" = field(default=None, compare=False)

    async def stored(self) -> "Accepted":
        """The same, once it is in the database."""
        return self if self.later is None else await asyncio.shield(self.later)


@dataclass(frozen=True, slots=True)
class BroughtFiles:
    """The files of a message, or of that which it replies to: `stored` ones by their ids, of this label, and others."""

    stored: tuple[Attachment, ...] = ()
    announced: tuple[Attachment, ...] = ()
    label: Label = Label.UNTRUSTED


NO_FILES = BroughtFiles()


def delay(arrival: Arrival) -> float:
    """Seconds for which its turn waits: 0, unless more of the same thought may follow at once."""
    said = arrival.inbound
    if said.address.channel in OWN_CHANNELS or said.solo:
        return 0.0
    part = said.album or said.forwarded or (said.attachments and len(said.text.strip()) <= FEW_CHARS)
    return ALBUM_SECONDS if part or arrival.followed or _POINTS_ON.search(said.text) else 0.0


def is_plain(said: Inbound) -> bool:
    """Whether it is a person's own text alone, in a private chat."""
    besides = (said.album, said.quoted_id, said.quoted.strip(), said.forwarded, said.added.strip(), said.fork)
    return said.private and not any((*besides, said.attachments, said.quoted_files, said.client))


class InboundWriter:
    """Locks the address and its session, then stores the arrival once and queues its task."""

    def __init__(self, engine: Engine, journal: Journal) -> None:
        self._people, self._instance = engine.people, engine.instance
        self._journal = journal

    async def store(
        self, database: Database, arrival: Arrival, place: Place | None, role: Role, decision: Decision
    ) -> Accepted:
        """`write` in a transaction of its own, or for a plain message in one statement."""
        if isinstance(decision, StartTurn) and is_plain(arrival.inbound) and not self._journal.is_fresh(place):
            [stored] = await database.run_alone(lambda conn: self.accept(conn, [(arrival, role)]))
            if stored is not None:
                return stored
        return await database.run(lambda tx: self.write(tx, arrival, place, role, decision))

    async def accept(self, conn: Connection, said: Sequence[tuple[Arrival, Role]]) -> list[Accepted | None]:
        """Store plain messages of one address, in order and in one statement.

        None for those that `write` has to look at: the chat is unknown or another's, or the message was stored before.
        """
        stored = await unread.accept(conn, [self._plain(arrival, role) for arrival, role in said], self._instance)
        return [None if ids is None else Accepted(StartTurn(), *ids) for ids in stored]

    def _plain(self, arrival: Arrival, role: Role) -> PlainMessage:
        said = arrival.inbound
        text, label = marks.without_marks(said.text), label_of(role, private=True, as_owner=said.as_owner)
        return PlainMessage(said, text, label, arrival.id, self._people.holder(said, role), delay(arrival))

    async def write(
        self, tx: Connection, arrival: Arrival, place: Place | None, role: Role, decision: Decision
    ) -> Accepted:
        """Store an arrival, or return the earlier result of a duplicate; `place` is its journal file."""
        inbound = await _in_its_place(tx, arrival.inbound)
        if isinstance(decision, Edit) and (late := await _added_mention(tx, inbound, role)) is not None:
            inbound, decision = late, StartTurn()
        if isinstance(decision, Edit) and await addresses.find(tx, inbound.address) is None:
            return Accepted(Ignore("edit of something unknown"))
        at = await self._locked_address(tx, inbound, role)
        if place is not None:
            await self._journal.bind(tx, at, place)
        kind = inbox.kind_of(decision)
        arrived = await inbox.enter(tx, inbound, kind, at, arrival.id, handled=kind != "command")
        if arrived is None:
            return await _seen_before(tx, inbound, decision)
        accepted = Accepted(decision, arrived, at.id, at.session_id)
        quoted = await _quoted_files(tx, at, inbound) if isinstance(decision, StartTurn) else NO_FILES
        said, label = _as_said(inbound, quoted), await _label(tx, at, inbound, role, quoted)
        message: MessageId | None
        match decision:
            case StartTurn():
                if inbound.client is not None and inbound.client.results:
                    await _conclude(tx, at, inbound.client.results)
                message = await self._queue(tx, at, arrived, replace(arrival, inbound=said), label, quoted)
            case Edit(platform_id):
                changed = replace(arrival, inbound=said)
                message = await revise(tx, at, arrived, changed, platform_id, label, self._instance)
            case RunCommand() | Ignore():
                return accepted
            case _:
                assert_never(decision)
        if message is not None and label > Label.OWNER:
            await sessions.taint(tx, at.session_id, label)
        return replace(accepted, message_id=message)

    async def _queue(
        self, tx: Connection, at: AddressRow, arrived: InboxId, arrival: Arrival, label: Label, quoted: BroughtFiles
    ) -> MessageId:
        said = arrival.inbound
        message = await unread.join(tx, at.id, said.album, said.text, label) if said.album else None
        if message is None:
            message = await unread.receive(tx, at.session_id, at.principal_id, at.id, said, label, arrival.id, arrived)
        else:
            await inbox.set_message(tx, arrived, message)
            quoted = NO_FILES  # the first part has them
        brought = replace(quoted, announced=(*said.attachments, *quoted.announced))
        if brought.stored or brought.announced:
            await self._attach(tx, at, message, brought)
        await tasks.create_chat(tx, at.principal_id, at.session_id, self._instance, delay=delay(arrival))
        return message

    async def _attach(self, tx: Connection, at: AddressRow, message: MessageId, brought: BroughtFiles) -> None:
        """Record the files of a message and queue their download, the owner's first; own channels have stored them."""
        stored, announced = brought.stored[:MOST_FILES], brought.announced[:MOST_FILES]
        kept = await attachments.add_kept(tx, at.principal_id, message, at.channel, stored)
        if at.channel in OWN_CHANNELS:
            kept += await attachments.add_kept(tx, at.principal_id, message, at.channel, announced)
        else:
            await attachments.add(tx, at.principal_id, message, at.channel, announced)
        await files.reread(tx, *kept)
        whose, about, dedupe, on = at.principal_id, {"message": message}, f"ingest:{message}", self._instance
        first = int(self._people.is_owner(whose))
        await tasks.create(tx, whose, "ingest", Lane.FILES, payload=about, dedupe=dedupe, instance=on, priority=first)

    async def _locked_address(self, tx: Connection, inbound: Inbound, role: Role) -> AddressRow:
        at = await addresses.lock(tx, inbound.address)
        if at is None:
            await addresses.reserve(tx, inbound.address)
            at = await addresses.lock(tx, inbound.address) or await self._open(tx, inbound, role)
        elif at.private and not await self._people.holds(tx, at.principal_id, inbound, role):
            at = await self._handed_over(tx, at, inbound, role)
        await sessions.lock(tx, at.session_id)
        return at

    async def _handed_over(self, tx: Connection, at: AddressRow, inbound: Inbound, role: Role) -> AddressRow:
        """Give the chat to its new principal; the old conversation stays with the old one."""
        principal = await self._people.principal(tx, inbound, role)
        session = await sessions.start(tx, principal, label_of(role, private=True, as_owner=inbound.as_owner))
        return await addresses.hand_over(tx, at.id, principal, session)

    async def _open(self, tx: Connection, inbound: Inbound, role: Role) -> AddressRow:
        principal = await self._people.principal(tx, inbound, role)
        own = label_of(role, private=inbound.private, as_owner=inbound.as_owner)
        labels = [_claimed(said, own) for said in inbound.earlier]
        session = await sessions.start(tx, principal, max([own, *labels]))
        at = await addresses.add(tx, inbound.address, principal, session, private=inbound.private)
        calls: dict[str, ToolIntent] = {}
        for said, label in zip(inbound.earlier, labels, strict=True):
            if said.role == "tool":
                if (intent := calls.get(said.call_id)) is not None:
                    result = ToolResult(said.call_id, said.text)
                    await tool_calls.conclude(tx, session, principal, None, intent, result, label)
                continue
            if said.text or not said.calls:
                await messages.say(tx, session, principal, _entry(said, inbound), label=label, origin=messages.EARLIER)
            if said.calls:
                intents = [ToolIntent(call, place, handed=True) for place, call in enumerate(said.calls, len(calls))]
                await tool_calls.intend(tx, session, principal, None, intents, label)
                calls |= {intent.call.id: intent for intent in intents}
        await sessions.set_digest(tx, session, digest.of(said.told for said in inbound.earlier))
        return at


async def _conclude(tx: Connection, at: AddressRow, results: Sequence[ToolResult]) -> None:
    """Store the results of a client's own tools; they are untrusted."""
    session, heard = at.session_id, await sessions.digest(tx, at.session_id)
    for result in results:
        called = await tool_calls.handed(tx, session, result.call_id)
        if called is not None and isinstance(called.entry, ToolIntent):
            task, principal = called.task_id, at.principal_id
            await tool_calls.conclude(tx, session, principal, task, called.entry, result, Label.UNTRUSTED)
        heard = digest.extend(heard, *Earlier("tool", result.text, call_id=result.call_id).told)
    await sessions.set_digest(tx, session, heard)
    await sessions.taint(tx, session, Label.UNTRUSTED)


async def _in_its_place(tx: Connection, inbound: Inbound) -> Inbound:
    """Move the second of two clients that continue one conversation at once to a conversation of its own."""
    if inbound.fork is None:
        return inbound
    at = await addresses.lock(tx, inbound.address)
    if at is not None:
        await sessions.lock(tx, at.session_id)
        told = digest.of(said.told for said in inbound.earlier)
        same = await sessions.by_digest(tx, at.principal_id, at.account, told)
        if same == inbound.address or await inbox.find_duplicate(tx, inbound) is not None:
            return inbound
    return replace(inbound, address=replace(inbound.address, chat=inbound.fork))


async def _added_mention(tx: Connection, edit: Inbound, role: Role) -> Inbound | None:
    """The message that an edit in a group addresses to the agent, which never got it before; None for other edits."""
    said = replace(edit, platform_id=edit.edits or "", edits=None)
    calls = not (said.private or said.deleted) and isinstance(decide(said, role, frozenset()), StartTurn)
    return said if calls and await inbox.find_duplicate(tx, said) is None else None


async def _quoted_files(tx: Connection, at: AddressRow, inbound: Inbound) -> BroughtFiles:
    """Those stored here, else as announced; of an album only those that the platform names, if it does so."""
    if not inbound.quoted_id:
        return replace(NO_FILES, announced=inbound.quoted_files)
    stored, label = await attachments.of_quoted(tx, at.principal_id, at.address, inbound.quoted_id)
    names = {file.name for file in inbound.quoted_files}
    chosen = [file for file in stored if file.name in names] or stored
    return BroughtFiles(tuple(chosen), () if chosen else inbound.quoted_files, label)


async def _label(tx: Connection, at: AddressRow, inbound: Inbound, role: Role, quoted: BroughtFiles) -> Label:
    """Files, forwarded texts, additions and quotes are untrusted, unless the quoted message is stored here."""
    own = label_of(role, private=inbound.private, as_owner=inbound.as_owner)
    if inbound.attachments or inbound.forwarded or inbound.added.strip() or quoted.announced:
        return Label.UNTRUSTED
    own = max(own, quoted.label) if quoted.stored else own
    return max(own, await unread.quoted_label(tx, at, inbound)) if inbound.quoted.strip() else own


def _as_said(inbound: Inbound, quoted: BroughtFiles) -> Inbound:
    """The message after its quote, before what was added to it and a note about files left out.

    Its text can't imitate our marks.
    """
    quote, text, source = inbound.quoted.strip(), inbound.text, inbound.forwarded
    if len(quote) > QUOTED:
        quote = f"{quote[:QUOTED]}… [cut: {len(quote)} characters]"
    files = (f"[its file {one_line(file.name, 80)} is below]" for file in (*quoted.stored, *quoted.announced))
    quote = "\n".join(filter(None, (quote, *files)))
    parts = [marks.forwarded(text, source) if source else marks.without_marks(text)]
    if quote:
        parts.insert(0, marks.quoted(quote))
    if added := inbound.added.strip():
        parts.append(marks.added(added if len(added) <= ADDED else f"{added[:ADDED]}… [cut: {len(added)} characters]"))
    if (more := len(inbound.attachments) - MOST_FILES) > 0:
        parts.append(f"[{more} more files were left out; a message may have {MOST_FILES}.]")
    return replace(inbound, text="\n\n".join(filter(None, parts)))


def _claimed(said: Earlier, own: Label) -> Label:
    """The label of a message in a client's history; instructions count as the owner's if it speaks as the owner."""
    theirs = said.role == "user" or (said.role == "system" and own is Label.OWNER)
    return own if theirs else Label.UNTRUSTED


def _entry(said: Earlier, inbound: Inbound) -> UserText | AssistantText:
    match said.role:
        case "assistant":
            return AssistantText(said.text, final=not said.calls)
        case "system":
            return UserText(f"{messages.INSTRUCTIONS}{said.text}", inbound.sent_at)
        case "user" | "tool":
            return UserText(marks.without_marks(said.text), inbound.sent_at)
        case _:
            assert_never(said.role)


async def _seen_before(tx: Connection, inbound: Inbound, decision: Decision) -> Accepted:
    first = await inbox.find_duplicate(tx, inbound)
    assert first is not None, "the key is taken"
    session = (await addresses.get(tx, first.address_id)).session_id
    if first.message_id is not None and (row := await messages.get(tx, first.message_id)):
        session = row.session_id
    return Accepted(decision, first.id, first.address_id, session, first.message_id, duplicate=True)


MAX_NOTICE = 1_000
NO_COMMAND = "An edited command isn't run. Send the command as a new message."
INSTEAD = "Its file is now {}, which isn't read: send it as a new message."
CLOSED = "Closed: {}, because the message that led to it was {}. Write again what you want."


async def revise(
    tx: Connection, at: AddressRow, arrived: InboxId, arrival: Arrival, changed: str, label: Label, own: InstanceId
) -> MessageId | None:
    """Apply the edit or deletion of the message with the platform id `changed`; the caller holds the session.

    Returns the message that says so to the agent; None if the agent never had the old text, or it is the same. An edit
    of a message that is being answered now joins the turn. Open questions that the old text led to are closed. A
    further part of an album has no message of its own: what changes there is told of the whole.
    """
    said = await _with_new_files_named(tx, at, arrival.inbound, changed)
    if not said.deleted and (early := await unread.edit(tx, at.id, changed, said.text, label)) is not None:
        return early
    old = await unread.withdraw(tx, at.id, changed, "deleted" if said.deleted else "edited", said.text)
    if not old:
        before = await inbox.find_duplicate(tx, replace(said, platform_id=changed))
        if before is not None and before.kind == "command" and not said.deleted:
            await send_notice(tx, at, NO_COMMAND, MAX_NOTICE)
        whole = await messages.get(tx, before.message_id) if before is not None and before.message_id else None
        if whole is None or whole.platform_id == changed:
            return None
        old = [whole]
    if old[-1].seq is None and old[-1].origin != REVISED:  # no turn has read it
        return old[-1].id
    if closed := await _close_questions(tx, old):
        told = CLOSED.format(", ".join(closed), "deleted" if said.deleted else "edited")
        await send_notice(tx, at, told, MAX_NOTICE)
    sent_at, part = old[0].sent_at, old[0].platform_id != changed
    text, origin = marks.edited(said.text, sent_at, part=part), REVISED
    if said.deleted:
        text, origin = marks.deleted(sent_at, part=part), DELETED
    note = replace(said, text=text, platform_id=changed)
    id = await unread.receive(
        tx, at.session_id, at.principal_id, at.id, note, label, arrival.id, arrived, origin=origin
    )
    if said.deleted or not old[-1].open:
        await unread.note(tx, at.session_id, id)
    else:
        await tasks.create_chat(tx, at.principal_id, at.session_id, own)
    return id


async def _with_new_files_named(tx: Connection, at: AddressRow, said: Inbound, changed: str) -> Inbound:
    """The edit, with a note on files that take the place of those the message had."""
    stored, _ = await attachments.of_quoted(tx, at.principal_id, at.address, changed)
    had = {(file.name, file.size) for file in stored}
    new = ", ".join(one_line(file.name, 80) for file in said.attachments if had and (file.name, file.size) not in had)
    return replace(said, text=f"{said.text}\n[{INSTEAD.format(new)}]") if new else said


async def _close_questions(tx: Connection, old: Sequence[MessageRow]) -> list[str]:
    calls = await tool_calls.of_answers(tx, [row.id for row in old])
    return await reviews.close(tx, calls=calls, of_trees=[top_task(old[0].principal_id, call) for call in calls])
