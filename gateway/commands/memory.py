"""/memory: list, search, pin and forget memories."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.agent.memory.remember import FORGET, Remembering
from gateway.agent.work.approvals import speaker
from gateway.commands import Command, CommandContext, CommandReply, asking
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.ids import MemoryId
from gateway.domain.memory.memories import ALL_MEMORIES, Kind, Memory, MemoryFilter, MemoryRefused
from gateway.domain.principals import Label
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import LONGEST, numbered_line
from gateway.store.memory import consolidation, indexing, memories, search
from gateway.store.trust.reviews import ReviewQuestion

SHOWN = 10
USAGE = (
    "Write /memory WORDS to search, /memory NUMBER to read one, "
    "/memory pin, unpin, forget, restore or keep with a number, /remember TEXT to add one."
)
NONE = "No memories yet."


@dataclass(frozen=True, slots=True)
class MemoryReplies:
    """The replies about one person's memories, with days in their zone."""

    own: Remembering
    zone: str | None

    async def to(self, argument: str, action: str, which: str) -> str:
        """The reply to an argument, which may be an action and a number."""
        own = self.own
        if not argument:
            return "\n".join([*await self._proposed(), await self._lines(await _overview(own), NONE)])
        if argument.isdecimal():
            [line] = await self._told([await own.get(_number(argument))], limit=10 * LONGEST)
            return line
        if which.isdecimal():
            match action:
                case "pin" | "unpin":
                    memory = await own.pin(_number(which), pinned=action == "pin")
                    return f"{action.capitalize()}ned: {self._line(memory)}"
                case "restore":
                    return f"Remembered again: {self._line(await own.restore(_number(which)))}"
        return await self._lines(await _search_hits(own, argument), "No memory matches that.")

    async def forget(self, id: MemoryId, ctx: CommandContext) -> CommandReply:
        """Forget a memory, or ask before more than itself is hidden: the reply is the question."""
        going, done = await self.own.forget_agreed(id)
        if done:
            forgotten = f"Forgotten: {self._line(going.memory)}\n{going.stays(ctx.role)}"
            return CommandReply(f"{forgotten}\n\n/memory restore {id} undoes that.")
        if (person := await speaker(ctx.tx, ctx.at, ctx.arrival)) is None:
            text = f"More than memory {id} would go; write to me in private once, so that I know you, and ask again."
            return CommandReply(text)
        at, change = ctx.at, going.change(ctx.at.session_id, ctx.role)
        what = FORGET, {"id": id}, change.preview, going.memory.label, change.base
        return await asking(ctx, ReviewQuestion(at.principal_id, person, *what, act=ToolClass.IRREVERSIBLE))

    async def keep(self, id: MemoryId, label: Label) -> str:
        """Accept a proposal: to remember this, or to replace other memories by it."""
        own = self.own
        replaced = [old for old, new in await consolidation.doubts(own.tx, own.principal) if new.id == id]
        for old in replaced:
            await memories.supersede(own.tx, own.principal, old.id, id, label)
        memory = await (own.get(id) if replaced else own.restore(id))
        instead = f", instead of {', '.join(str(old.id) for old in replaced)}" if replaced else ""
        return f"Kept{instead}: {self._line(memory)}"

    async def _proposed(self) -> list[str]:
        """The lines about proposals, which are dropped unless somebody accepts them."""
        own = self.own
        lines = [self._line(memory) for memory in await consolidation.proposals(own.tx, own.principal)]
        for old, new in await consolidation.doubts(own.tx, own.principal):
            lines.append(f"{self._line(new)}\n  instead of {self._line(old)}")
        return ["Proposed; /memory keep NUMBER accepts one:", *lines, ""] if lines else []

    async def _lines(self, rows: Sequence[Memory], nothing: str) -> str:
        return "\n".join([*(await self._told(rows) or [nothing]), "", USAGE])

    async def _told(self, rows: Sequence[Memory], limit: int = LONGEST) -> list[str]:
        """The rows, each of which says what holds in its place if it is out of date."""
        ids = [memory.id for memory in rows]
        newer = await search.replaced(self.own.tx, self.own.principal, ids, Label.UNTRUSTED)
        return [numbered_line(memory, limit, self.zone, newer.get(memory.id)) for memory in rows]

    def _line(self, memory: Memory) -> str:
        return numbered_line(memory, zone=self.zone)


async def run(ctx: CommandContext) -> CommandReply:
    """List pinned and new memories, or act on one; other words are searched for.

    Unverified memories are listed too, with a note: people read this, not a model.
    """
    own = Remembering(ctx.tx, ctx.at.principal_id, ALL_MEMORIES, clean=str)
    replies = MemoryReplies(own, ctx.services.zone_of(ctx.at.principal_id))
    action, _, which = ctx.argument.partition(" ")
    action, which = action.casefold(), which.strip()
    if action == FORGET and which.isdecimal():
        return await replies.forget(_number(which), ctx)
    if action == "keep" and which.isdecimal():
        return CommandReply(await replies.keep(_number(which), ctx.label))
    return CommandReply(await replies.to(ctx.argument, action, which))


async def _overview(own: Remembering) -> list[Memory]:
    every = MemoryFilter(kinds=(Kind.MEMORY,), at_most=Label.UNTRUSTED)
    pinned = MemoryFilter(kinds=(Kind.MEMORY,), at_most=Label.UNTRUSTED, pinned=True)
    rows = await memories.listed(own.tx, own.principal, pinned, SHOWN, weightiest=True)
    rows += await memories.listed(own.tx, own.principal, every, SHOWN)
    return list({memory.id: memory for memory in rows}.values())


async def _search_hits(own: Remembering, argument: str) -> list[Memory]:
    await indexing.index_turns(own.tx, own.principal, indexing.NEWEST)
    anything = MemoryFilter(at_most=Label.UNTRUSTED)
    ranked = await search.hybrid(own.tx, own.principal, lexemes(argument), anything, SHOWN)
    return [hit.memory for hit in ranked.hits]


def _number(text: str) -> MemoryId:
    """The number; one with more than 20 digits is cut, and still larger than any memory's."""
    return MemoryId(int(text[:20]))


command = Command(
    "memory", "list memories; WORDS searches them; pin, forget, restore, keep NUMBER", run, refusals=(MemoryRefused,)
)
