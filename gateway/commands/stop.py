"""/stop: cancel the running turn; what it has said so far stays."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.transcript import AssistantText
from gateway.store import tasks
from gateway.store.transcript import messages


async def run(ctx: CommandContext) -> CommandReply:
    """Cancel the running turn; its messages will not be answered."""
    task = await tasks.live_chat(ctx.tx, ctx.at.session_id)
    if task is None:
        return CommandReply("Nothing is running.")
    cancelled = await tasks.cancel(ctx.tx, task)
    await messages.close(ctx.tx, ctx.at.session_id)
    said = AssistantText(ctx.written, final=False) if ctx.written.strip() else None
    return CommandReply("Stopped.", tuple(cancelled), unfinished=said)


command = Command("stop", "stop the current answer", run, tokens="any")
