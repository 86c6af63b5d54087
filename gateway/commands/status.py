"""/status: the gateway at a glance."""

from datetime import timedelta

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.tasks import Status
from gateway.store import steps, tasks


async def run(ctx: CommandContext) -> CommandReply:
    """Uptime, model, session, queue, and what today has cost (UTC day)."""
    now = ctx.clock.now()
    queue = await tasks.queue(ctx.tx)
    spent = await steps.spent_since(ctx.tx, now.replace(hour=0, minute=0, second=0, microsecond=0))
    uptime = timedelta(seconds=int((now - ctx.started_at).total_seconds()))
    calls = "1 model call" if spent.calls == 1 else f"{spent.calls} model calls"
    lines = [
        f"Up {uptime}",
        f"Model: {ctx.models.active}",
        f"Session: {ctx.at.session_id}",
        f"Queue: {queue.get(Status.RUNNING, 0)} running, {queue.get(Status.PENDING, 0)} waiting",
        f"Today: ${spent.cost_usd:.4f}, {calls}, {spent.tokens_in + spent.tokens_out} tokens",
    ]
    return CommandReply("\n".join(lines))


command = Command("status", "uptime, model, session, queue, today's cost", run)
