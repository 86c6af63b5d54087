"""/zone: the time zone of this person or group."""

from gateway.commands import Command, CommandContext, CommandReply


async def run(ctx: CommandContext) -> CommandReply:
    """Write the zone into USER.md; a second run changes nothing."""
    if not ctx.argument:
        return CommandReply("Write /zone and your time zone by its IANA name, such as: /zone Europe/Berlin")
    zone = await ctx.services.note_zone(ctx.at.principal_id, ctx.argument, ctx.label)
    if zone != ctx.argument:
        return CommandReply(f"Saved in USER.md, but owner.timezone in config.json is {zone} and takes precedence.")
    return CommandReply(f"Your times are in {zone} now.")


command = Command("zone", "set your time zone, such as Europe/Berlin", run, refusals=(ValueError,))
