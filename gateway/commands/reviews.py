"""/reviews: list the requests that wait for an answer."""

from gateway.agent.work.approvals import answer_by_command
from gateway.commands import Command, CommandContext, CommandReply


async def run(ctx: CommandContext) -> CommandReply:
    """List them, as /approve without a number does."""
    return CommandReply(await answer_by_command(ctx.tx, ctx.at, ctx.arrival, "", ctx.clock.now(), yes=True))


command = Command("reviews", "list what waits for your answer; /approve or /deny NUMBER answers", run)
