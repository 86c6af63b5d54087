"""/help: the list of commands."""

from gateway.commands import Command, CommandContext, CommandReply


async def run(ctx: CommandContext) -> CommandReply:
    """List the commands that the sender may use, with their summaries."""
    lines = [f"/{name}: {c.summary}" for name, c in sorted(ctx.commands.items()) if c.allows(ctx)]
    return CommandReply("\n".join([*lines, "", "Anything else you write goes to the agent."]))


command = Command("help", "this list", run, tokens="any")
