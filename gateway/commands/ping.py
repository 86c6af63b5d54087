"""/ping: check that the gateway is alive, and its latency."""

from gateway.commands import Command, CommandContext, CommandReply


async def run(ctx: CommandContext) -> CommandReply:
    """Report the gateway's latency and the UTC time, without calling a model."""
    now = ctx.clock.now()
    latency_ms = max(0.0, (now - ctx.arrival.received_at).total_seconds() * 1000)
    return CommandReply(f"pong · {latency_ms:.0f} ms · {now:%Y-%m-%d %H:%M:%S} UTC")


command = Command("ping", "check that the gateway is alive: latency and UTC time", run, tokens="any")
