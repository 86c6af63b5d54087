"""Branches: continue a conversation from before a message that its person wrote."""

from uuid import uuid4

from gateway.domain.conversation.inbound import Attachment, Inbound, Sender
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import EntryId, MessageId, PrincipalId, SessionId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses, inbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.inbox import InboxRow
from gateway.store.files import attachments
from gateway.store.transcript import conversations, journals, sessions, unread
from gateway.store.transcript.messages import MessageRow
from gateway.store.trust import reviews
from gateway.store.work import tasks
from gateway.workspace.journal.files import summarise

BUSY = "Your last message isn't answered yet; wait, or write /stop, then try again."
READ_ONLY = "This works in your own private chats only."
NOT_YOURS = "This conversation has no such message that you wrote yourself."
TOO_DEEP = "This conversation has too many branches of branches; /new starts another one."


class NotBranched(OwnerMustAct):
    """The conversation was not branched; the text says why."""


async def own_message(tx: Connection, at: AddressRow, id: MessageId | None) -> MessageRow:
    """The message with this id, or the newest, if the person at this address wrote it; raises `NotBranched`."""
    chat = (await conversations.these(tx, at.principal_id, [at.session_id])).get(at.session_id)
    if not at.private or (chat and not chat.ours):
        raise NotBranched(READ_ONLY)
    if await tasks.live_chat(tx, at.session_id):
        raise NotBranched(BUSY)
    row = await conversations.said_by_person(tx, at.session_id, id)
    if row is None or row.principal_id != at.principal_id or not await inbox.own_words(tx, row.id):
        raise NotBranched(NOT_YOURS)
    return row


async def branch(
    tx: Connection, at: AddressRow, arrival: InboxRow, row: MessageRow, text: str, own: Label, model: str | None = None
) -> tuple[SessionId, MessageId]:
    """Branch before `row` and store `text` with the files of `row` as its first message; returns both ids.

    The text has the label of its person's words (`own`), or that of `row` if it is trusted less, since that may quote
    others. Every chat of the session moves to the branch, as with /new; the old session can be resumed. Raises
    `NotBranched`.
    """
    assert row.seq is not None, "a turn has taken it"
    before, label = row.seq - 1, max(row.label, own)
    made = await conversations.start_branch(tx, at.principal_id, row.session_id, before, label)
    if made is None:
        raise NotBranched(TOO_DEEP)
    await _set_aside(tx, at, before)
    await addresses.move(tx, at.session_id, made)
    said = (at.address, Sender("", ""), text, arrival.platform_id, arrival.platform_time)
    words = Inbound(*said, solo=row.solo, private=at.private, as_owner=arrival.as_owner)
    asked = await unread.receive(tx, made, at.principal_id, at.id, words, label, EntryId(uuid4()), arrival.id, model)
    [row] = await attachments.with_attachments(tx, [row])
    files = [Attachment(str(file.id), file.name) for file in row.attached if file.id]
    await attachments.add_kept(tx, at.principal_id, asked, at.channel, files)
    return made, asked


async def _set_aside(tx: Connection, at: AddressRow, until: int) -> None:
    """End the session, in which nothing runs, without telling other sessions, since it continues in the branch.

    Only the part up to `until`, which the branch reads, is summarised.
    """
    if at.address.temporary:
        await conversations.hide(tx, at.session_id)
        return
    await reviews.close(tx, at.session_id)
    await sessions.end(tx, at.session_id)
    await close_journal(tx, at.principal_id, at.session_id, until=until)


async def close_journal(tx: Connection, principal: PrincipalId, session: SessionId, **until: int) -> None:
    """Close the session's file, and queue its summary: of all its messages, or of those `until` a place."""
    asked, answered, said = await journals.outline(tx, session)
    await journals.close(tx, session, summarise(asked, answered, said))
    if said:
        await tasks.create(tx, principal, "summarise", Lane.AGENTS, payload={"session": str(session), **until})
