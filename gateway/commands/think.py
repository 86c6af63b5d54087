"""/think: how much the model thinks before it answers in this chat."""

from dataclasses import replace
from typing import get_args

from gateway.commands import DEFAULT, Command, CommandContext, CommandReply
from gateway.domain.principals import Role
from gateway.domain.settings import ThinkingLevel
from gateway.store.delivery import addresses

_LEVELS: dict[str, ThinkingLevel | None] = {DEFAULT: None, **{level: level for level in get_args(ThinkingLevel)}}


async def run(ctx: CommandContext) -> CommandReply:
    """Show the level, or set it; a member's chat has one only while its model is one of `models.members`."""
    said, models = ctx.argument.strip().lower(), ctx.services.models()
    usual = models.thinking or "as the model does by itself"
    if not said:
        now = f"{ctx.at.thinking}, until /think {DEFAULT}" if ctx.at.thinking else f"{usual} (models.thinking)"
        return CommandReply(f"Thinking in this chat: {now}\n/think LEVEL changes it: {', '.join(_LEVELS)}")
    if said not in _LEVELS:
        return CommandReply(f"There is no such level. One of: {', '.join(_LEVELS)}")
    model = ctx.chosen_model or models.chain[0]
    if ctx.role is not Role.OWNER and model not in models.members:
        return CommandReply(f"Only the owner sets how much {model} thinks; members do so for models.members.")
    level = _LEVELS[said]
    await addresses.choose(ctx.tx, replace(ctx.at, thinking=level))
    told = f"{level}, until /think {DEFAULT}" if level else usual
    return CommandReply(f"Thinking in this chat from the next answer on: {told}")


command = Command("think", "how much the model thinks here: off, low, medium, high", run)
