"""/ping: is the gateway alive, and how quick."""

from gateway.commands import Command, CommandContext, CommandReply


async def run(ctx: CommandContext) -> CommandReply:
    """Gateway latency and UTC time, without calling a model."""
    now = ctx.clock.now()
    latency_ms = max(0.0, (now - ctx.arrival.received_at).total_seconds() * 1000)
    return CommandReply(f"pong · {latency_ms:.0f} ms · {now:%Y-%m-%d %H:%M:%S} UTC")


command = Command("ping", "is the gateway alive: latency and UTC time", run)
