"""/help: what can be typed."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.principals import Role


async def run(ctx: CommandContext) -> CommandReply:
    """Every command they may use, with its summary."""
    owner = ctx.role is Role.OWNER
    lines = [f"/{name}: {c.summary}" for name, c in sorted(ctx.commands.items()) if owner or not c.owner_only]
    return CommandReply("\n".join([*lines, "", "Anything else you write goes to the agent."]))


command = Command("help", "this list", run)
