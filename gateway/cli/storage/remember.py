"""`supaclaw remember`."""

from typing import Annotated

import typer

from gateway.agent.memory.remember import MemoryRefused, Remembering
from gateway.cli.console import echo
from gateway.cli.database import leak_guard, require_owner, with_database
from gateway.cli.output import AsJson, print_json
from gateway.domain.errors import OwnerMustAct
from gateway.domain.memory.memories import Category, Memory, NewMemory
from gateway.domain.principals import Label
from gateway.store.connection.pool import Connection, Database

ORIGIN = "user"
CATEGORIES = ", ".join(Category)

Importance = Annotated[float, typer.Option(min=0, max=1, metavar="0–1", help="Importance, 0 to 1.")]
MinImportance = Annotated[float | None, typer.Option(min=0, max=1, metavar="0–1", help="Minimum importance, 0 to 1.")]
Tags = Annotated[str, typer.Option(metavar="TAG,…", help="Tags, separated by commas.")]


def remember(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A sentence that makes sense on its own.")],
    category: Annotated[Category, typer.Option(metavar="CATEGORY", help=f"{CATEGORIES}.")] = Category.CONTEXT,
    importance: Importance = 0.5,
    tags: Tags = "",
    as_json: AsJson = False,
) -> None:
    """Remember something, in your name."""
    new = NewMemory(text, category, importance, separated(tags), label=Label.OWNER, origin=ORIGIN)

    async def store(database: Database) -> tuple[Memory, bool]:
        clean = await leak_guard(database)

        async def work(tx: Connection) -> tuple[Memory, bool]:
            return await Remembering(tx, (await require_owner(tx)).id, clean=clean).remember(new)

        return await database.run(work)

    try:
        memory, is_new = with_database(store)
    except MemoryRefused as refusal:
        raise OwnerMustAct(str(refusal)) from refusal
    if as_json:
        print_json({"id": memory.id, "new": is_new, "seen_count": memory.seen_count})
    elif is_new:
        echo(f"Stored memory {memory.id} [{memory.category}] (importance: {memory.importance:g})")
    else:
        echo(f"Memory {memory.id} already says so (seen {memory.seen_count} times); `memories edit` changes it")


def separated(tags: str) -> tuple[str, ...]:
    """The tags of a list with commas."""
    return tuple(tag for each in tags.split(",") if (tag := each.strip()))
