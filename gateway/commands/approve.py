"""/approve: approve a request of the agent."""

from gateway.agent.work.approvals import answer_by_command
from gateway.commands import Command, CommandContext, CommandReply


async def run(ctx: CommandContext) -> CommandReply:
    """Approve, if the sender is the person whom the agent asked, with an account of their own."""
    return CommandReply(await answer_by_command(ctx.tx, ctx.at, ctx.arrival, ctx.argument, ctx.clock.now(), yes=True))


command = Command("approve", "approve a call by its NUMBER; without one, list what waits", run)
