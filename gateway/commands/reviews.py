"""/reviews: what waits for a person's answer."""

from gateway.agent.work.approvals import answer_by_command
from gateway.commands import Command, CommandContext, CommandReply


async def run(ctx: CommandContext) -> CommandReply:
    """The same list as /approve shows without a number."""
    return CommandReply(await answer_by_command(ctx.tx, ctx.at, ctx.arrival, "", ctx.clock.now(), yes=True))


command = Command("reviews", "list what waits for your answer; /approve or /deny NUMBER answers", run)
