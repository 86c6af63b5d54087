"""/help: the list of commands."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.principals import Role


async def run(ctx: CommandContext) -> CommandReply:
    """List the commands that the sender may use, with their summaries."""
    owner = ctx.role is Role.OWNER
    lines = [f"/{name}: {c.summary}" for name, c in sorted(ctx.commands.items()) if owner or not c.owner_only]
    return CommandReply("\n".join([*lines, "", "Anything else you write goes to the agent."]))


command = Command("help", "this list", run)
