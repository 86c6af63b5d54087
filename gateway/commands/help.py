"""/help: what can be typed."""

from gateway.commands import Command, CommandContext, CommandReply


async def run(ctx: CommandContext) -> CommandReply:
    """Every command with its summary."""
    lines = [f"/{name}: {command.summary}" for name, command in sorted(ctx.commands.items())]
    return CommandReply("\n".join([*lines, "", "Anything else you write goes to the agent."]))


command = Command("help", "this list", run)
