"""/deny: a person's no to a change that the agent asks for."""

from gateway.agent.approvals import NotDecided, settle, speaker, waiting
from gateway.commands import Command, CommandContext, CommandReply


async def run(ctx: CommandContext) -> CommandReply:
    """Only the answer of the person who was asked counts, given with their own account."""
    asked, now = await speaker(ctx.tx, ctx.arrival), ctx.clock.now()
    if not ctx.argument:
        return CommandReply(await waiting(ctx.tx, asked, now, None if ctx.at.private else ctx.at.id))
    try:
        by = ctx.arrival.sender
        row = await settle(ctx.tx, asked, ctx.argument, now, yes=False, by=by, in_chat=True)
    except NotDecided as refusal:
        return CommandReply(str(refusal))
    return CommandReply(f"{row.name} is denied; nothing was changed.")


command = Command("deny", "refuse what the agent asks you: NUMBER", run)
