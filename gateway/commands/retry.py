"""/retry: have a message of one's own answered once more, in a branch of the conversation."""

import re
from uuid import uuid4

from gateway.commands import Command, CommandContext, CommandReply, set_aside
from gateway.domain.ids import EntryId, MessageId
from gateway.domain.inbound import Attachment, Inbound, Sender
from gateway.domain.principals import Label, Role, label_of
from gateway.store import addresses, inbox, tasks
from gateway.store.transcript import attachments, branches, conversations, unread
from gateway.store.transcript.messages import MessageRow

BUSY = "Your last message isn't answered yet; wait, or write /stop, then try again."
READ_ONLY = "This works in your own private chats only."
NOT_YOURS = "This conversation has no such message that you wrote yourself."
TOO_DEEP = "This conversation has too many branches of branches; /new starts another one."
_NUMBERED = re.compile(r"#(\d{1,18})(?!\S)\s*")


async def run(ctx: CommandContext) -> CommandReply:
    """The same words, before which the conversation branches off; with a model, that one answers first."""
    found, model = await own_message(ctx)
    if isinstance(found, CommandReply):
        return found
    if model and ctx.role is not Role.OWNER:
        return CommandReply("Only the owner can choose the model; /retry alone asks the same one again.")
    if model and model not in ctx.models.chain:
        return CommandReply("That model isn't configured; /model lists those that are.")
    return await branch(ctx, found, found.text, found.label, model)


async def own_message(ctx: CommandContext) -> tuple[MessageRow | CommandReply, str]:
    """The message that is meant, `#ID` or the newest, and the rest of the argument; or why there is none."""
    numbered = _NUMBERED.match(ctx.argument)
    rest = ctx.argument[numbered.end() :] if numbered else ctx.argument
    whose, session = ctx.at.principal_id, ctx.at.session_id
    chat = (await conversations.these(ctx.tx, whose, [session])).get(session)
    if not ctx.at.private or (chat and not chat.ours):
        return CommandReply(READ_ONLY), rest
    if await tasks.live_chat(ctx.tx, session):
        return CommandReply(BUSY), rest
    row = await branches.said(ctx.tx, session, MessageId(int(numbered[1])) if numbered else None)
    if row is None or row.principal_id != whose or not await inbox.own_words(ctx.tx, row.id):
        return CommandReply(NOT_YOURS), rest
    return row, rest


async def branch(ctx: CommandContext, row: MessageRow, text: str, label: Label, model: str = "") -> CommandReply:
    """Go on from before a message with this text instead, which keeps its files; the old version can be resumed.

    Every chat in the session moves along, as with /new.
    """
    assert row.seq is not None, "a turn has taken it"
    before, own = row.seq - 1, label_of(ctx.role, private=ctx.at.private)
    made = await branches.start(ctx.tx, ctx.at.principal_id, row.session_id, before, max(own, label))
    if made is None:
        return CommandReply(TOO_DEEP)
    await set_aside(ctx.tx, ctx.at.session_id, ctx.at.principal_id, before)
    await addresses.move(ctx.tx, ctx.at.session_id, made)
    arrival, at = ctx.arrival, ctx.at
    said = Inbound(at.address, Sender("", ""), text, arrival.platform_id, arrival.platform_time, solo=row.solo)
    asked = await unread.receive(
        ctx.tx, made, at.principal_id, at.id, said, label, EntryId(uuid4()), arrival.id, model or None
    )
    [row] = await attachments.joined(ctx.tx, [row])
    files = [Attachment(str(file.id), file.name) for file in row.attached if file.id]
    await attachments.add_kept(ctx.tx, at.principal_id, asked, at.channel, files)
    return CommandReply(successor=made, asked=asked)


command = Command("retry", "answer my last message again, in a branch", run)
