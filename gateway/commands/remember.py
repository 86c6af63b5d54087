"""/remember: keep a fact for every later conversation."""

from gateway.agent.memory.remember import Remembering
from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.memory.memories import ALL_MEMORIES, Category, MemoryRefused, NewMemory
from gateway.memory.wording import kind, shortened
from gateway.store.memory import memories

USAGE = "Write /remember and what to remember, such as: /remember preference: tea without sugar. The kinds are {}."


async def run(ctx: CommandContext) -> CommandReply:
    """Store the text as a memory of this person or group; a first word like `fact:` names its category."""
    if not ctx.argument:
        return CommandReply(USAGE.format(", ".join(Category)))
    category, text = _parsed(ctx.argument)
    new = NewMemory(text, category, label=ctx.label, origin="user", session=ctx.at.session_id)
    own = Remembering(ctx.tx, ctx.at.principal_id, ALL_MEMORIES, clean=str)
    memory, is_new = await own.remember(new)
    if not is_new:
        return CommandReply(f"Memory {memory.id} already says so; it was seen {memory.seen_count} times.")
    replaced = await memories.replaced_by(ctx.tx, memory.principal_id, memory.id)
    instead = "".join(f", instead of {old.id}: {shortened(old)}" for old in replaced[-1:])
    return CommandReply(f"Remembered as {memory.id} [{kind(memory)}]{instead}. /memory forget {memory.id} undoes it.")


def _parsed(argument: str) -> tuple[Category, str]:
    name, colon, text = argument.partition(":")
    if colon and name.strip().casefold() in set(Category):
        return Category(name.strip().casefold()), text
    return Category.CONTEXT, argument


command = Command("remember", "remember a fact; CATEGORY: TEXT, or just TEXT", run, refusals=(MemoryRefused,))
