"""/memory: list, search, pin and forget memories."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from gateway.agent.memory.remember import MemoryRefused, Remembering
from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.ids import MemoryId
from gateway.domain.memory.memories import ALL_MEMORIES, Kind, Memory, MemoryFilter
from gateway.domain.principals import Label, label_of
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import LONGEST, numbered_line
from gateway.store.memory import consolidation, indexing, memories, search

SHOWN = 10
NEWEST = 100
"""Most messages that are indexed before a search."""
USAGE = (
    "Write /memory WORDS to search, /memory NUMBER to read one, "
    "/memory pin, unpin, forget, restore or keep with a number, /remember TEXT to add one."
)
NONE = "No memories yet."


Line: TypeAlias = Callable[..., str]
"""`numbered_line` in the person's zone."""


async def run(ctx: CommandContext) -> CommandReply:
    """List pinned and new memories, or act on one; other words are searched for.

    Unverified memories are listed too, with a note: people read this, not a model.
    """
    line = partial(numbered_line, zone=ctx.services.zone_of(ctx.at.principal_id))
    own = Remembering(ctx.tx, ctx.at.principal_id, ALL_MEMORIES, clean=str)
    action, _, which = ctx.argument.partition(" ")
    try:
        if action.casefold() == "keep" and which.strip().isdecimal():
            label = label_of(ctx.role, private=ctx.at.private, as_owner=ctx.arrival.as_owner)
            return CommandReply(await _keep(line, own, _number(which.strip()), label))
        return CommandReply(await _reply_to(line, own, ctx.argument, action.casefold(), which.strip()))
    except MemoryRefused as refusal:
        return CommandReply(str(refusal))


async def _reply_to(line: Line, own: Remembering, argument: str, action: str, which: str) -> str:
    if not argument:
        return "\n".join([*await _proposed(line, own), _lines(line, await _overview(own), NONE)])
    if argument.isdecimal():
        return line(await own.get(_number(argument)), limit=10 * LONGEST)
    if which.isdecimal():
        match action:
            case "pin" | "unpin":
                memory = await own.pin(_number(which), pinned=action == "pin")
                return f"{action.capitalize()}ned: {line(memory)}"
            case "forget":
                memory = await own.forget(_number(which))
                return f"Forgotten: {line(memory)}\n\n/memory restore {memory.id} undoes that."
            case "restore":
                return f"Remembered again: {line(await own.restore(_number(which)))}"
    return _lines(line, await _search_hits(own, argument), "No memory matches that.")


async def _keep(line: Line, own: Remembering, id: MemoryId, label: Label) -> str:
    """Accept a proposal: to remember this, or to replace other memories by it."""
    replaced = [old for old, new in await consolidation.doubts(own.tx, own.principal) if new.id == id]
    for old in replaced:
        await memories.supersede(own.tx, own.principal, old.id, id, label)
    memory = await (own.get(id) if replaced else own.restore(id))
    instead = f", instead of {', '.join(str(old.id) for old in replaced)}" if replaced else ""
    return f"Kept{instead}: {line(memory)}"


async def _proposed(line: Line, own: Remembering) -> list[str]:
    """The lines about proposals, which are dropped unless somebody accepts them."""
    lines = [line(memory) for memory in await consolidation.proposals(own.tx, own.principal)]
    for old, new in await consolidation.doubts(own.tx, own.principal):
        lines.append(f"{line(new)}\n  instead of {line(old)}")
    return ["Proposed; /memory keep NUMBER accepts one:", *lines, ""] if lines else []


async def _overview(own: Remembering) -> list[Memory]:
    every = MemoryFilter(kinds=(Kind.MEMORY,), at_most=Label.UNTRUSTED)
    pinned = MemoryFilter(kinds=(Kind.MEMORY,), at_most=Label.UNTRUSTED, pinned=True)
    rows = await memories.listed(own.tx, own.principal, pinned, SHOWN, weightiest=True)
    rows += await memories.listed(own.tx, own.principal, every, SHOWN)
    return list({memory.id: memory for memory in rows}.values())


async def _search_hits(own: Remembering, argument: str) -> list[Memory]:
    await indexing.index_turns(own.tx, own.principal, NEWEST)
    anything = MemoryFilter(at_most=Label.UNTRUSTED)
    ranked = await search.hybrid(own.tx, own.principal, lexemes(argument), anything, SHOWN)
    return [hit.memory for hit in ranked.hits]


def _number(text: str) -> MemoryId:
    """The number; one with more than 20 digits is cut, and still larger than any memory's."""
    return MemoryId(int(text[:20]))


def _lines(line: Line, rows: Sequence[Memory], nothing: str) -> str:
    return "\n".join([*map(line, rows), *([] if rows else [nothing]), "", USAGE])


command = Command("memory", "list memories; WORDS searches them; pin, forget, restore, keep NUMBER", run)
