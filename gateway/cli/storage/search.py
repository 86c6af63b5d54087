"""`supaclaw search` and `supaclaw remember`, without a running gateway."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, TypeVar
from uuid import UUID

from gateway.agent.memory.remember import Remembering
from gateway.agent.memory.search import MemorySearch
from gateway.cli.connections.database import leak_guard, owners_moment, owners_zone, require_owner, with_database
from gateway.cli.terminal.console import Style, echo
from gateway.cli.terminal.output import AsJson, Limit, argument, flag, option, print_json
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import SessionId
from gateway.domain.memory.memories import (
    ALL_MEMORIES,
    KIND_NAMES,
    Category,
    Embedder,
    Kind,
    Memory,
    MemoryFilter,
    MemoryHit,
    NewMemory,
    SearchMode,
    SearchResult,
    SearchScope,
)
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line
from gateway.domain.time import stamp
from gateway.memory.wording import kind, memory_json, outdated, who
from gateway.store.connection.pool import Connection, Database

OWNER_ORIGIN = "user"
CATEGORIES = ", ".join(Category)

Result = TypeVar("Result")
Importance = Annotated[float, option("Importance, 0 to 1.", "0–1", min=0, max=1)]
MinImportance = Annotated[float | None, option("Minimum importance, 0 to 1.", "0–1", min=0, max=1)]
Tags = Annotated[str, option("Tags, separated by commas.", "TAG,…")]


def remember(
    text: Annotated[str, argument("A sentence that makes sense on its own.", "TEXT")],
    category: Annotated[Category, option(f"{CATEGORIES}.", "CATEGORY")] = Category.CONTEXT,
    importance: Importance = 0.5,
    tags: Tags = "",
    as_json: AsJson = False,
) -> None:
    """Store a memory in your name."""
    new = NewMemory(text, category, importance, split_list(tags), label=Label.OWNER, origin=OWNER_ORIGIN)
    memory, is_new = with_memories(lambda own: own.remember(new))
    if as_json:
        print_json({"id": memory.id, "new": is_new, "seen_count": memory.seen_count})
    elif is_new:
        echo(f"Stored memory {memory.id} [{memory.category}] (importance: {memory.importance:g})")
    else:
        echo(f"Memory {memory.id} already says so (seen {memory.seen_count} times); `memories edit` changes it")


def with_memories(work: Callable[[Remembering], Awaitable[Result]]) -> Result:
    """Run `work` on the owner's memories."""

    async def run_work(database: Database) -> Result:
        clean = await leak_guard(database)

        async def run(tx: Connection) -> Result:
            return await work(Remembering(tx, (await require_owner(tx)).id, ALL_MEMORIES, clean))

        return await database.run(run)

    return with_database(run_work)


def split_list(tags: str) -> tuple[str, ...]:
    """The tags of a list that is separated by commas."""
    return tuple(tag for each in tags.split(",") if (tag := each.strip()))


MODEL_LOAD_SECONDS = 20.0
"""Time for loading the shipped model; a search that waited longer goes on by words alone."""


@asynccontextmanager
async def query_embedder(mode: SearchMode, clean: Callable[[str], str]) -> AsyncIterator[Embedder | None]:
    """Yield the configured model; None for a search by words, or if `models.embedding` is "none"."""
    from gateway.app.storage.offline import StoredSecrets

    environment = Environment.read(os.environ)
    models = load(environment.config, os.environ, StoredSecrets(environment, os.environ)).models
    name = "none" if mode is SearchMode.KEYWORD else models.embedding.removeprefix("litellm:")
    async with AsyncExitStack() as stack:
        if name == "none":
            yield None
        elif name == "local":
            from gateway.background.cpu.embedding import LocalEmbedder

            local = LocalEmbedder(patience=MODEL_LOAD_SECONDS)
            stack.push_async_callback(local.close)
            yield local
        else:
            from gateway.llm.client import build_client
            from gateway.llm.embedding.remote import RemoteEmbedder

            client = await build_client(models, os.environ, SystemClock())
            stack.push_async_callback(client.close)
            yield RemoteEmbedder(name, client.embed, SystemClock(), clean)


LONGEST_HIT = 1_000
"""Most characters that are shown of one hit."""


def search(
    query: Annotated[str, argument("What to look for.", "QUERY")],
    mode: Annotated[SearchMode, option("By words, meaning or both; auto: both if a model embeds.")] = SearchMode.AUTO,
    scope: Annotated[SearchScope, option("Everything, or the conversation of --session.")] = SearchScope.AUTO,
    session: Annotated[UUID | None, option("The conversation for --scope current.", "ID")] = None,
    types: Annotated[str, option(f"Only these: {', '.join(KIND_NAMES)}.", "TYPE,…")] = "",
    since: Annotated[str | None, option("Earliest date, such as 2026-03-01.", "TIME")] = None,
    until: Annotated[str | None, option("Latest date.", "TIME")] = None,
    tags: Annotated[str, option("Only with all of these tags.", "TAG,…")] = "",
    category: Annotated[Category | None, option("Only memories of this category.", "CATEGORY")] = None,
    min_importance: MinImportance = None,
    untrusted: Annotated[bool, flag("Include untrusted texts.", "--include-untrusted")] = False,
    limit: Limit = 8,
    as_json: AsJson = False,
) -> None:
    """Search chats, memories and files, as your agent does."""
    if scope is SearchScope.CURRENT and session is None:
        raise OwnerMustAct("a terminal has no conversation; add --session ID, `supaclaw sessions` shows them")
    which = MemoryFilter(
        kinds=_kinds(types),
        categories=(category,) if category else (),
        tags=split_list(tags.casefold()),
        since=None if since is None else owners_moment(since),
        until=None if until is None else owners_moment(until, end=True),
        at_most=Label.UNTRUSTED if untrusted else Label.KNOWN,
        min_importance=min_importance,
    )

    async def work(database: Database) -> SearchResult:
        owner = (await database.read(require_owner)).id
        async with query_embedder(mode, await leak_guard(database)) as embedder:
            return await MemorySearch(database, lambda _name=None: embedder).find(
                owner,
                query,
                mode=mode,
                scope=scope,
                filter=which,
                k=limit,
                session=SessionId(session) if session else None,
                askings=True,
                zone=owners_zone(),
                reach=ALL_MEMORIES,
            )

    found = with_database(work)
    if as_json:
        print_json(_found_json(found))
    else:
        _print_hits(found)


def whereabouts(memory: Memory) -> str:
    """The file and page, or the conversation, of a memory; empty if it has neither."""
    if memory.path:
        return f"{memory.path}, page {memory.page}" if memory.page else memory.path
    return f"conversation {memory.session_id}" if memory.session_id else ""


def _found_json(found: SearchResult) -> dict[str, object]:
    hits = [
        {"score": hit.score, "words": hit.words, "cosine": hit.cosine, **memory_json(hit.memory)} for hit in found.hits
    ]
    return {name: getattr(found, name) for name in ("mode", "weak", "left_out", "note")} | {"hits": hits}


def _print_hits(found: SearchResult) -> None:
    for hit in found.hits:
        memory = hit.memory
        at = memory.event_at or memory.created_at
        whose = f"{who(memory)}:" if memory.kind is Kind.TURN else f"[{kind(memory)}]"
        echo(f"{stamp(at, owners_zone())} {whose} {one_line(memory.text, LONGEST_HIT)}")
        if now := found.replaced.get(memory.id):
            echo(f"    {outdated(now, owners_zone())}")
        echo(lead=f"    {_why(hit)}", style=Style.DIM)
    notes = [found.note]
    if found.weak:
        notes.append("Only weak matches were found." if found.hits else "Nothing was found.")
    if found.left_out:
        notes.append(f"{found.left_out} untrusted rows were left out; --include-untrusted shows them.")
    for note in filter(None, notes):
        echo(note, error=True)


def _why(hit: MemoryHit) -> str:
    cosine = "" if hit.cosine is None else f", meaning {hit.cosine:.2f}"
    where = whereabouts(hit.memory)
    return f"{hit.memory.id}: score {hit.score:.2f}, words {hit.words:.0%}{cosine}" + (f"; {where}" if where else "")


def _kinds(types: str) -> tuple[Kind, ...]:
    try:
        return tuple(KIND_NAMES[each] for each in split_list(types))
    except KeyError as error:
        raise OwnerMustAct(f"{error} is not a type; --types takes {', '.join(KIND_NAMES)}") from None
