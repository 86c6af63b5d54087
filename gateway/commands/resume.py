"""/resume: continue an earlier conversation, here."""

from gateway.agent.conversation.branches import BUSY
from gateway.commands import Command, CommandContext, CommandReply, end_session
from gateway.domain.time import day_stamp
from gateway.store.delivery import addresses
from gateway.store.transcript import conversations, sessions
from gateway.store.work import tasks

SHORTEST = 6
WHICH = "Write /resume and the beginning of an id; the page's list of chats and `supaclaw sessions` list them."
READ_ONLY = "You can read that conversation but not continue it: a program, a schedule or an import made it."


async def run(ctx: CommandContext) -> CommandReply:
    """End this conversation, as /new does, and move the chats that share it to the other one, which keeps its label.

    If that is open in another chat, both share it. The reply names no title, which others may have written.
    """
    wanted = None
    if ctx.at.private and len(ctx.argument) >= SHORTEST:
        wanted = await conversations.beginning(ctx.tx, ctx.at.principal_id, ctx.argument)
    if wanted is None or not wanted.ours:
        return CommandReply(READ_ONLY if wanted else WHICH)
    if wanted.id == ctx.at.session_id:
        return CommandReply("This chat already has that conversation open.")
    if await tasks.live_chat(ctx.tx, ctx.at.session_id):
        return CommandReply(BUSY)
    also = " It is open in another chat, too; /link off separates them."
    shared = await addresses.lock_session(ctx.tx, wanted.id)
    await sessions.lock(ctx.tx, wanted.id)
    await end_session(ctx.tx, ctx.at.session_id)
    await sessions.reopen(ctx.tx, wanted.id)
    await addresses.move(ctx.tx, ctx.at.session_id, wanted.id)
    day = day_stamp(wanted.started_at, ctx.services.zone_of(ctx.at.principal_id))
    reply = f"This chat continues the conversation of {day} ({str(wanted.id)[:8]})."
    return CommandReply(reply + also * shared, successor=wanted.id)


command = Command("resume", "continue an earlier conversation", run, owner_only=True)
