"""/status: the gateway's status."""

from collections.abc import Iterator
from datetime import timedelta

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.health import Vitals
from gateway.domain.principals import Role
from gateway.domain.text.texts import size_text
from gateway.domain.work.tasks import Status
from gateway.store.delivery import outbox
from gateway.store.memory import vectors
from gateway.store.migrate import outdated
from gateway.store.work import steps, tasks


async def run(ctx: CommandContext) -> CommandReply:
    """Report uptime, model and session; to the owner also the queue, today's cost (UTC) and the gateway's health."""
    uptime = timedelta(seconds=int((ctx.clock.now() - ctx.started_at).total_seconds()))
    lines = [f"Up {uptime}", f"Model: {ctx.services.models().active}", f"Session: {ctx.at.session_id}"]
    if ctx.role is Role.OWNER:
        lines += [await _queue(ctx), await _today(ctx), *_condition(ctx.services.vitals())]
        lines += [f"For {name} {text}" for name, text in (await outbox.waiting(ctx.tx)).items()]
        lines += [f"Search by meaning: {await vectors.state(ctx.tx)}", await outdated(ctx.tx)]
    return CommandReply("\n".join(filter(None, lines)))


async def _queue(ctx: CommandContext) -> str:
    queue = await tasks.queue(ctx.tx)
    return f"Queue: {queue.get(Status.RUNNING, 0)} running, {queue.get(Status.PENDING, 0)} waiting"


async def _today(ctx: CommandContext) -> str:
    spent = await steps.spent_since(ctx.tx, ctx.clock.now().replace(hour=0, minute=0, second=0, microsecond=0))
    calls = "1 model call" if spent.calls == 1 else f"{spent.calls} model calls"
    return f"Today: ${spent.cost_usd:.4f}, {calls}, {spent.tokens_in + spent.tokens_out} tokens"


def _condition(vitals: Vitals) -> Iterator[str]:
    """Yield a line for each fact that is known and matters."""
    if (lag := vitals.loop) is not None:
        yield f"Event loop: at most {lag.worst_ms:.0f} ms late in the last minute, {lag.worst_ever_ms:.0f} ms ever"
    if (memory := vitals.memory) is not None:
        shedding = ", shedding load" if memory.shedding else ""
        yield f"Memory: {size_text(memory.used)} of {size_text(memory.ceiling)}{shedding}"
    for name, channel in vitals.channels.items():
        heard = "" if channel.heard_ago is None else f", heard {timedelta(seconds=int(channel.heard_ago))} ago"
        yield f"Channel {name}: {channel.state}{heard}"
    if vitals.unclean_ends:
        yield f"Unplanned restarts: {vitals.unclean_ends} in the last 24 hours"
    for title, text in (("Checkpoints", vitals.checkpoints), ("Files", vitals.files), ("Heartbeat", vitals.heartbeat)):
        if text is not None:
            yield f"{title}: {text}"
    yield from (f"Next {name}: {at:%a %Y-%m-%d %H:%M} UTC" for name, at in vitals.jobs.items() if at)


command = Command("status", "uptime, model, session, queue, today's cost, health", run, tokens="any")
