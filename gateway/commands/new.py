"""/new: end the session and start another."""

from gateway.commands import Command, CommandContext, CommandReply, end_session
from gateway.store.delivery import addresses
from gateway.store.transcript import sessions


async def run(ctx: CommandContext) -> CommandReply:
    """Cancel the running turn and close its messages; linked chats move to the new session too."""
    ended = await end_session(ctx.tx, ctx.at.session_id)
    session = await sessions.start(ctx.tx, ctx.at.principal_id, ctx.label)
    await addresses.move(ctx.tx, ctx.at.session_id, session)
    return CommandReply(f"New session started ({str(session)[:8]}).{ended}", ended.cancelled, session)


command = Command("new", "start a new conversation", run, tokens="any")
