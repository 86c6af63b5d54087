"""/grant: allow the call of a request in advance, for some time and a number of times."""

from gateway.agent.work import approvals as rules
from gateway.agent.work.approvals import NotDecided, speaker
from gateway.commands import Command, CommandContext, CommandReply
from gateway.store.trust import grants


async def run(ctx: CommandContext) -> CommandReply:
    """List, give or revoke grants; only the person who is asked can, with an account of their own."""
    who, now = await speaker(ctx.tx, ctx.at, ctx.arrival), ctx.clock.now()
    which, _, rest = ctx.argument.partition(" ")
    if not which:
        lines = [rules.grant_line(row) for row in await grants.live(ctx.tx, who, now)] if who else []
        return CommandReply("\n".join([*lines, "", "/grant revoke NUMBER revokes one."]) if lines else rules.NO_GRANTS)
    if which == "revoke":
        row = await rules.revoke_grant(ctx.tx, who, rest, now, by=ctx.arrival.sender)
        return CommandReply(f"{row.name} is revoked.")
    terms = rules.parse_terms(rest, now)
    grant = await rules.give_grant(ctx.tx, who, which, terms, by=ctx.arrival.sender, in_chat=True)
    return CommandReply(f"Allowed. {rules.grant_line(grant)}")


command = Command("grant", "allow a call in advance, by its NUMBER, a count and a time", run, refusals=(NotDecided,))
