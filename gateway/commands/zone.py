"""/zone: the time zone of this person or group."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.principals import label_of


async def run(ctx: CommandContext) -> CommandReply:
    """Write the zone into USER.md; a second run changes nothing."""
    if not ctx.argument:
        return CommandReply("Write /zone and your time zone by its IANA name, such as: /zone Europe/Berlin")
    label = label_of(ctx.role, private=ctx.at.private, as_owner=ctx.arrival.as_owner)
    try:
        zone = await ctx.services.note_zone(ctx.at.principal_id, ctx.argument, label)
    except ValueError as error:
        return CommandReply(f"{error}")
    if zone != ctx.argument:
        return CommandReply(f"Saved in USER.md, but owner.timezone in config.json is {zone} and takes precedence.")
    return CommandReply(f"Your times are in {zone} now.")


command = Command("zone", "set your time zone, such as Europe/Berlin", run)
