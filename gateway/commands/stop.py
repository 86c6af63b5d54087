"""/stop: cancel the running turn."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.store import tasks
from gateway.store.transcript import messages


async def run(ctx: CommandContext) -> CommandReply:
    """Cancel the running turn; its messages will not be answered."""
    task = await tasks.live_chat(ctx.tx, ctx.at.session_id)
    if task is None:
        return CommandReply("Nothing is running.")
    cancelled = await tasks.cancel(ctx.tx, task)
    await messages.close(ctx.tx, ctx.at.session_id)
    return CommandReply("Stopped.", tuple(cancelled))


command = Command("stop", "stop the current answer", run, tokens="any")
