"""/new: end the session and start another."""

from gateway.commands import Command, CommandContext, CommandReply, replace_session


async def run(ctx: CommandContext) -> CommandReply:
    """Cancel the running turn and close its messages; linked chats move to the new session too."""
    ended, session = await replace_session(ctx.tx, ctx.at.principal_id, ctx.at.session_id, ctx.label)
    begun = "Deleted" if ctx.at.address.temporary else "New session started"
    return CommandReply(f"{begun} ({str(session)[:8]}).{ended}", ended.cancelled, session)


command = Command("new", "start a new conversation", run, tokens="any")
