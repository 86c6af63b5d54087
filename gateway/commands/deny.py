"""/deny: a person's no to a change that the agent asks for."""

from gateway.agent.work.approvals import answer_by_command
from gateway.commands import Command, CommandContext, CommandReply


async def run(ctx: CommandContext) -> CommandReply:
    """Only the answer of the person who was asked counts, given with their own account."""
    return CommandReply(await answer_by_command(ctx.tx, ctx.at, ctx.arrival, ctx.argument, ctx.clock.now(), yes=False))


command = Command("deny", "deny a request by its NUMBER", run)
