"""`supaclaw memories`: list, change, forget and permanently erase memories."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from gateway.agent.memory.remember import Remembering
from gateway.cli.connections.database import run_quietly
from gateway.cli.storage.search import CATEGORIES, MinImportance, split_list, whereabouts, with_memories
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import (
    AsJson,
    Limit,
    argument,
    confirm,
    confirm_unless,
    flag,
    heading,
    option,
    print_json,
    print_rows,
    shown,
)
from gateway.config.data.erasures import ErasureRequest
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.errors import OwnerMustAct, required
from gateway.domain.ids import MemoryId
from gateway.domain.memory.memories import Category, Memory, MemoryFilter, MemoryRefused
from gateway.domain.principals import Label, Role
from gateway.domain.text.texts import one_line
from gateway.flow.journal.export import LISTED_KINDS, memory_lines, provenance, times
from gateway.importers.passport import seal_of, sealed
from gateway.memory.wording import kind, memory_json, memory_with_importance, who
from gateway.store.memory import memories
from gateway.store.memory.memories import MemorySource
from gateway.store.transcript import imports
from gateway.store.transcript.imports import ImportOrigin

if TYPE_CHECKING:
    from gateway.app.storage.erase import Found


COLUMNS = ("id", "category", "text", "importance", "tags", "pinned", "learned_at")
LONGEST_LISTED, LONGEST_SOURCE = 200, 300
NONE = 'No memories yet; `supaclaw remember "…"` adds one, and so does your agent.'

Id = Annotated[int, argument("The memory's number in the list.", "ID")]


def show_all(
    category: Annotated[Category | None, option(f"{CATEGORIES}.", "CATEGORY")] = None,
    tags: Annotated[str, option("Only with all of these tags.", "TAG,…")] = "",
    min_importance: MinImportance = None,
    superseded: Annotated[bool, flag("Include replaced memories.", "--all")] = False,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List memories and summaries, newest first."""
    which = MemoryFilter(
        kinds=LISTED_KINDS,
        categories=(category,) if category else (),
        tags=split_list(tags.casefold()),
        at_most=Label.UNTRUSTED,
        superseded=superseded,
        min_importance=min_importance,
    )
    rows = with_memories(lambda own: memories.listed(own.tx, own.principal, which, limit))
    facts = [memory_json(row) if as_json else _memory_facts(row) for row in rows]
    print_rows(facts, (*COLUMNS, "replaced_by") if superseded else COLUMNS, as_json=as_json, none=NONE)


def show(id: Id, as_json: AsJson = False) -> None:
    """Show a memory and its sources."""

    async def read(own: Remembering) -> tuple[Memory, list[MemorySource], ImportOrigin | None]:
        unknown = MemoryRefused(f"There is no memory {id}; `supaclaw memories list` and `supaclaw search` show them.")
        memory = required(await memories.get(own.tx, own.principal, MemoryId(id)), unknown)
        memory, learned = await memories.learned(own.tx, own.principal, memory)
        return memory, learned, await imports.whence(own.tx, own.principal, memory.id)

    memory, learned, whence = with_memories(read)
    if as_json:
        print_json({**memory_json(memory), **times(memory), "learned_from": provenance(learned, whence)})
    else:
        _print(memory, learned, whence)


def edit(
    id: Id,
    text: Annotated[str | None, option("Its new text.", "TEXT")] = None,
    category: Annotated[Category | None, option(f"{CATEGORIES}.", "CATEGORY")] = None,
    importance: Annotated[float | None, option("Importance, 0 to 1.", "0–1", min=0, max=1)] = None,
    tags: Annotated[str | None, option('New tags instead of the old ones; "" removes all.', "TAG,…")] = None,
) -> None:
    """Change a memory."""
    if text is None and category is None and importance is None and tags is None:
        raise OwnerMustAct("say what to change: --text, --category, --importance or --tags")

    async def change(own: Remembering) -> Memory:
        new = None if tags is None else split_list(tags)
        return await own.edit(MemoryId(id), text=text, category=category, importance=importance, tags=new)

    echo(f"changed: {id} {memory_with_importance(with_memories(change))}")


def pin(id: Id, undo: Annotated[bool, flag("Unpin it.", "--undo")] = False) -> None:
    """Pin a memory: your agent looks at it first."""
    pinned = with_memories(lambda own: own.pin(MemoryId(id), pinned=not undo))
    echo(f"{'unpinned' if undo else 'pinned'}: {id} {memory_with_importance(pinned)}")


def forget(
    id: Id,
    undo: Annotated[bool, flag("Restore it.", "--undo")] = False,
    erase: Annotated[bool, flag("Permanently erase it and its sources, everywhere.", "--erase")] = False,
    also: Annotated[list[str] | None, option("Also erase sentences that contain this; repeatable.", "WORDS")] = None,
    yes: Annotated[bool, flag("Forget or erase without asking.", "--yes")] = False,
) -> None:
    """Forget a memory; searches no longer find it."""
    if undo and erase:
        raise OwnerMustAct("erased text can't be restored; use --undo or --erase, not both")
    if also and not erase:
        raise OwnerMustAct("--also belongs to --erase")
    if erase:
        erase_permanently(MemoryId(id), also or [], yes=yes)
        return

    if undo:
        restored = with_memories(lambda own: own.restore(MemoryId(id)))
        echo(f"remembered again: {id} {memory_with_importance(restored)}")
        return
    going, done = with_memories(lambda own: own.forget_agreed(MemoryId(id)))
    said = f"{id} {memory_with_importance(going.memory)}"
    if not done:
        refusal = f"{len(going.stating)} rows that state it would go, too; add --yes, or confirm in a terminal"
        confirm_unless(yes, f"Forget {said}{going.also}\nAll of this?", refusal)
        going = with_memories(lambda own: own.forget(MemoryId(id)))
    echo(f"forgotten: {said}; --undo restores it{going.also}\n{going.stays(Role.OWNER)}")


def export() -> None:
    """Print all memories, including replaced ones, as JSON lines."""
    for line in with_memories(exported_lines):
        echo(line)


async def exported_lines(own: Remembering) -> list[str]:
    """All memories as `memory_lines`, each with the seal of this gateway."""
    seal = seal_of(Environment.read(os.environ).data, own.principal)
    return [sealed(line, seal) for line in await memory_lines(own)]


def _memory_facts(memory: Memory) -> Mapping[str, object]:
    return {
        "id": memory.id,
        "category": kind(memory),
        "text": one_line(memory.text, LONGEST_LISTED),
        "importance": memory.importance,
        "tags": memory.tags,
        "pinned": memory.pinned,
        "learned_at": memory.created_at,
        "replaced_by": memory.superseded_by,
    }


def _print(memory: Memory, learned: Sequence[MemorySource], whence: ImportOrigin | None) -> None:
    echo(memory.text)
    echo()
    facts = {
        "kind": kind(memory),
        "importance": f"{memory.importance:g}",
        "tags": ", ".join(memory.tags),
        "pinned": "yes" if memory.pinned else "",
        "trust": memory.label.name.lower(),
        "from": who(memory),
        "agent": memory.agent if memory.agent != "default" else "",
        "where": whereabouts(memory),
        "said": f"{memory.seen_count} times" if memory.seen_count > 1 else "",
        "replaced by": memory.superseded_by,
        **times(memory),
        "imported": whence and f"from {whence.place} ({whence.source}), {whence.imported_at:%Y-%m-%d}",
    }
    for name, value in facts.items():
        if text := one_line(shown(name, value), LONGEST_SOURCE):
            echo(f"{heading(name)}: {text}")
    for source in learned:
        echo(f"learned: {shown('at', source.sent_at)}, {source.kind}: {one_line(source.text, LONGEST_SOURCE)}")


_MAX_QUOTED, _QUOTE_CHARS = 20, 150


def erase_permanently(memory: MemoryId, also: Sequence[str], *, yes: bool) -> None:
    """Erase a memory and its sources, once the owner has seen the list of them and agreed."""
    from gateway.app.storage.erase import erase

    if not (yes or sys.stdin.isatty()):
        raise OwnerMustAct("this permanently erases texts; add --yes to confirm")
    environment = Environment.read(os.environ)
    config = load_early(environment, os.environ)
    receipt: list[str] = []

    def agree(found: "Found") -> None:
        receipt.extend(found.lines(_named(found)))
        if not yes:
            _print_erasure(found)
            confirm("Erase all of this permanently? It can't be restored.")

    run_quietly(erase(environment, config, ErasureRequest(memory=memory, also=tuple(also)), agree))
    echo("\n".join([f"erased: memory {memory}", *receipt]))


def _print_erasure(found: "Found") -> None:
    """Print the texts to erase, which the receipt leaves out."""
    said = list(dict.fromkeys([*found.origins.memories.values(), *found.origins.messages.values()]))
    for text in said[:_MAX_QUOTED]:
        echo(f"“{one_line(text, _QUOTE_CHARS)}”")
    if len(said) > _MAX_QUOTED:
        echo(f"… and {len(said) - _MAX_QUOTED} more")
    echo("\n".join(found.lines(_named(found))))


def _named(found: "Found") -> list[str]:
    return [f"{fate}: {path}" for path, fate in found.files]
