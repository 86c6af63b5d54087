"""/status: the gateway at a glance."""

from datetime import timedelta

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.principals import Role
from gateway.domain.tasks import Status
from gateway.store import steps, tasks


async def run(ctx: CommandContext) -> CommandReply:
    """Uptime, model and session; for the owner also the queue and what today has cost (UTC day)."""
    uptime = timedelta(seconds=int((ctx.clock.now() - ctx.started_at).total_seconds()))
    lines = [f"Up {uptime}", f"Model: {ctx.models.active}", f"Session: {ctx.at.session_id}"]
    if ctx.role is Role.OWNER:
        lines += [await _queue(ctx), await _today(ctx)]
    return CommandReply("\n".join(lines))


async def _queue(ctx: CommandContext) -> str:
    queue = await tasks.queue(ctx.tx)
    return f"Queue: {queue.get(Status.RUNNING, 0)} running, {queue.get(Status.PENDING, 0)} waiting"


async def _today(ctx: CommandContext) -> str:
    midnight = ctx.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    spent = await steps.spent_since(ctx.tx, midnight)
    calls = "1 model call" if spent.calls == 1 else f"{spent.calls} model calls"
    return f"Today: ${spent.cost_usd:.4f}, {calls}, {spent.tokens_in + spent.tokens_out} tokens"


command = Command("status", "uptime, model, session, queue, today's cost", run)
