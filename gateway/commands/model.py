"""/model: which model answers, and why."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.principals import Role


async def run(ctx: CommandContext) -> CommandReply:
    """Show the chain in order, and models in cooldown after an error; others see the model alone."""
    models = ctx.services.models()
    if ctx.role is not Role.OWNER:
        return CommandReply(f"Model: {models.active}")
    lines = [f"Model: {models.active} ({models.why})"]
    others = [name for name in models.chain if name != models.active]
    if others:
        lines.append(f"Then: {', '.join(others)}")
    lines += [f"{c.model} is skipped for {c.seconds:.0f} s ({c.kind.value})" for c in models.cooling]
    lines.append("To change it, set models.primary in config.json; it applies at once.")
    return CommandReply("\n".join(lines))


command = Command("model", "which model answers, and why", run, tokens="any")
