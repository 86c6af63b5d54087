"""/model: which model answers, and why; another one for this chat, until it is changed or until some time."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches

from gateway.commands import DEFAULT, Command, CommandContext, CommandReply
from gateway.domain.principals import Role
from gateway.domain.work.schedules import UTC_ZONE
from gateway.store.delivery import addresses
from gateway.timetable.schedules import InvalidSchedule, end_of
from gateway.timetable.wording import moment

_LIMITED = re.compile(r"(.+?)\s+(until|for)\s+(.+)", re.IGNORECASE | re.DOTALL)


async def run(ctx: CommandContext) -> CommandReply:
    """Show the chain in order, the chat's choice, and models in cooldown after an error; or switch."""
    if ctx.argument.strip():
        return CommandReply(await _switched(ctx, ctx.argument.strip()))
    models, owner = ctx.services.models(), ctx.role is Role.OWNER
    speed = f"; {models.speed:.0f} tokens/s" if models.speed else ""
    why = f" ({models.why}{speed})" if owner else ""
    lines = [f"Model: {models.active}{why}"]
    if (chosen := ctx.chosen_model) is not None:
        lines = [f"Model of this chat: {chosen}, {_ending(ctx, ctx.at.model_until)}"]
        lines.append(f"Elsewhere: {models.active}{why}")
    others = [name for name in models.chain if name != models.active]
    if owner and others:
        lines.append(f"Then: {', '.join(others)}")
    if owner:
        lines += [f"{c.model} is skipped for {c.seconds:.0f} s ({c.kind.value})" for c in models.cooling]
    choices = models.choices if owner else models.members
    if choices and not ctx.at.address.by_token:
        lines.append(f"/model NAME, or NAME until 18:00, switches this chat: {', '.join(choices)}")
    if owner:
        lines.append("For all chats, set models.primary in config.json; it applies at once.")
    return CommandReply("\n".join(lines))


async def _switched(ctx: CommandContext, said: str) -> str:
    if ctx.at.address.by_token:
        return "A program chooses by the field `model` of its requests; GET /v1/models lists the names."
    if said.lower() == DEFAULT:
        await addresses.choose(ctx.tx, replace(ctx.at, model=None, model_until=None))
        return f"This chat uses the configured model again: {ctx.services.models().active}"
    try:
        said, until = _limited(ctx, said)
    except InvalidSchedule as error:
        return f"Nothing is changed: {error}"
    owner, models = ctx.role is Role.OWNER, ctx.services.models()
    choices = models.choices if owner else models.members
    found = matching(said, choices)
    if owner and not found and said.partition("/")[0] in {name.partition("/")[0] for name in choices if "/" in name}:
        found = [said] if "/" in said and not re.search(r"\s", said) else []
    match found:
        case [name]:
            await addresses.choose(ctx.tx, replace(ctx.at, model=name, model_until=until))
            return f"Model of this chat from the next answer on: {name}, {_ending(ctx, until)}"
        case []:
            known = f"One of: {', '.join(choices)}" if choices else "The owner lets members choose by models.members."
            return f"There is no such model to choose. {known}"
        case _:
            return f"That can be {' or '.join(found)}; say more of its name."


def _limited(ctx: CommandContext, said: str) -> tuple[str, datetime | None]:
    """The name, and when its time is over, if one is said; raises `InvalidSchedule`."""
    if (found := _LIMITED.fullmatch(said)) is None:
        return said, None
    name, word, time = found.groups()
    time, zone = f"in {time}" if word.lower() == "for" else time, ctx.services.zone_of(ctx.at.principal_id)
    return name, end_of(time, now=ctx.clock.now(), zone=zone, asked_at=ctx.arrival.platform_time)


def _ending(ctx: CommandContext, until: datetime | None) -> str:
    if until is None:
        return f"until /model {DEFAULT}"
    return f"until {moment(until, ctx.services.zone_of(ctx.at.principal_id) or UTC_ZONE)} or /model {DEFAULT}"


def matching(said: str, names: Sequence[str]) -> list[str]:
    """The names that someone may mean: this one, those with all the words in any order, else the most similar."""
    words, bare = [_bare(word) for word in said.split()], {name: _bare(name) for name in names}
    exact = [name for name in names if _bare(said) in (bare[name], _bare(name.rpartition("/")[2]))]
    having = [name for name in names if all(word in bare[name] for word in words)]
    short = {_bare(name.rpartition("/")[2]): name for name in names}
    return exact[:1] or having or [short[near] for near in get_close_matches(_bare(said), short, 1)]


def _bare(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


command = Command("model", "which model answers, and why; NAME, NAME until 18:00 switch this chat", run, tokens="any")
