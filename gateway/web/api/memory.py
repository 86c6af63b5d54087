"""The memory for other programs: what each of them may see and change is its token's reach."""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from gateway.agent.memory.remember import Remembering
from gateway.agent.memory.search import (
    ALWAYS,
    LEAST_WORDS,
    RECALLED_ROWS,
    RECALLED_TOKENS,
    MemorySearch,
    bootstrap_context,
)
from gateway.domain.ids import MemoryId, SessionId
from gateway.domain.memory.memories import Category, Kind, MemoryFilter, MemoryHit, NewMemory, SearchMode
from gateway.domain.memory.memories import SearchScope as Where
from gateway.domain.people.credentials import Scope
from gateway.domain.principals import Label
from gateway.memory.wording import Bootstrap, MemoryRow, memory_row, recall_block
from gateway.store.memory import memories
from gateway.store.memory.memories import MemorySource
from gateway.web.auth.access import Caller, needs
from gateway.web.components.memory_rows import in_memory
from gateway.web.http.bodies import Moment, Name, Text
from gateway.web.http.errors import Refused
from gateway.web.site import AtSite

router = APIRouter()
Client = Annotated[Caller, Depends(needs(Scope.MEMORY))]
Id = Annotated[int, Path(ge=1, lt=2**63)]
Most = Annotated[int, Query(ge=1, le=200)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SearchRequest(_Body):
    """What to look for, and where; rows of `since` ≤ time < `until`."""

    query: Text
    mode: SearchMode = SearchMode.AUTO
    scope: Where = Where.AUTO
    session: UUID | None = None
    kinds: tuple[Kind, ...] = ()
    categories: tuple[Category, ...] = ()
    tags: tuple[Name, ...] = Field((), max_length=20)
    agent: Name | None = None
    since: Moment | None = None
    until: Moment | None = None
    min_importance: float | None = Field(None, ge=0, le=1)
    max_results: int = Field(8, ge=1, le=200)
    include_untrusted: bool = False
    superseded: bool = False


class NewMemoryRequest(_Body):
    """What to remember."""

    text: Text
    category: Category = Category.CONTEXT
    importance: float = Field(0.5, ge=0, le=1)
    tags: tuple[Name, ...] = ()
    pinned: bool = False
    event_at: Moment | None = None
    supersedes: int | None = Field(None, ge=1, lt=2**63)


class MemoryEdit(_Body):
    """What to change; the rest stays."""

    text: Text | None = None
    category: Category | None = None
    importance: float | None = Field(None, ge=0, le=1)
    tags: tuple[Name, ...] | None = None
    pinned: bool | None = None


class ContextRequest(_Body):
    """What is being talked about."""

    message: Text
    bootstrap: bool = True
    max_tokens: int = Field(2_000, ge=0, le=20_000)


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row that was found: `words` is its share of the query's rare words."""

    memory: MemoryRow
    score: float
    words: float
    cosine: float | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search came to; `left_out` counts untrusted rows, `note` says why only words were compared."""

    hits: list[FoundRow]
    mode: SearchMode
    weak: bool
    left_out: int
    note: str


@dataclass(frozen=True, slots=True)
class Learned:
    """A memory with the messages it was learned from."""

    memory: MemoryRow
    sources: list[MemorySource]


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory; `new` is false if it was there already."""

    memory: MemoryRow
    new: bool


@dataclass(frozen=True, slots=True)
class BootstrapText:
    """A text for a prompt; "" if there is nothing to tell."""

    text: str


@dataclass(frozen=True, slots=True)
class Context:
    """Texts for a prompt: what a session begins with, and what bears on the message."""

    bootstrap: str
    recalled: str


@router.post("/api/memory/search")
async def search(site: AtSite, caller: Client, asked: SearchRequest) -> SearchResult:
    """Search memory; by words and meaning where there is an embedding model, else by words."""
    if not asked.query.strip():
        raise Refused(400, "empty_query", "query: say what to look for.", param="query")
    if asked.since and asked.until and asked.since >= asked.until:
        raise Refused(400, "empty_window", "since must be before until.", param="since")
    found = await MemorySearch(site.backend.database, site.backend.embedder).find(
        site.backend.owner.id,
        asked.query,
        mode=asked.mode,
        scope=asked.scope,
        filter=_filter(caller, asked),
        k=asked.max_results,
        session=SessionId(asked.session) if asked.session else None,
        reach=caller.reach,
    )
    return SearchResult([_found(hit) for hit in found.hits], found.mode, found.weak, found.left_out, found.note)


@router.get("/api/memory")
async def listed(
    site: AtSite,
    caller: Client,
    category: Category | None = None,
    kind: Kind = Kind.MEMORY,
    tag: Name | None = None,
    pinned: bool | None = None,
    limit: Most = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> list[MemoryRow]:
    """What is remembered, the newest first."""
    which = MemoryFilter(
        kinds=(kind,),
        categories=(category,) if category else (),
        tags=(tag.casefold(),) if tag else (),
        pinned=pinned,
        at_most=Label.UNTRUSTED,
    )
    async with site.backend.database.connection() as conn:
        found = [
            memory
            for part in caller.reach.filters(which)
            for memory in await memories.listed(conn, site.backend.owner.id, part, offset + limit)
        ]
    found.sort(key=lambda memory: -memory.id)
    return [memory_row(memory) for memory in found[offset : offset + limit]]


@router.post("/api/memory", status_code=201)
async def remember(site: AtSite, caller: Client, new: NewMemoryRequest) -> Stored:
    """Remember something. What is known already is not stored twice."""
    own = caller.reach.everything
    memory = NewMemory(
        new.text,
        new.category,
        new.importance,
        new.tags,
        new.pinned,
        label=Label.OWNER if own else Label.UNTRUSTED,
        origin="user" if own else "api",
        event_at=new.event_at,
        supersedes=None if new.supersedes is None else MemoryId(new.supersedes),
    )
    stored, is_new = await in_memory(site, lambda own: own.remember(memory), caller.reach)
    return Stored(memory_row(stored), is_new)


@router.get("/api/memory/{id}")
async def get(site: AtSite, caller: Client, id: Id) -> Learned:
    """One row, and what it was learned from."""

    async def read(own: Remembering) -> Learned:
        memory = await own.get(MemoryId(id))
        own_row = caller.reach.changes(memory)
        sources = await memories.sources(own.tx, own.principal, memory.id) if own_row else []
        return Learned(memory_row(memory), sources)

    return await in_memory(site, read, caller.reach)


@router.patch("/api/memory/{id}")
async def edit(site: AtSite, caller: Client, id: Id, change: MemoryEdit) -> MemoryRow:
    """Change a memory or a summary. A correction is better remembered with `supersedes`."""
    changed = await in_memory(
        site,
        lambda own: own.edit(
            MemoryId(id),
            text=change.text,
            category=change.category,
            importance=change.importance,
            tags=change.tags,
            pinned=change.pinned,
        ),
        caller.reach,
    )
    return memory_row(changed)


@router.delete("/api/memory/{id}")
async def forget(site: AtSite, caller: Client, id: Id) -> MemoryRow:
    """Leave a row out from now on."""
    return memory_row(await in_memory(site, lambda own: own.forget(MemoryId(id)), caller.reach))


@router.post("/api/memory/{id}/restore")
async def restore(site: AtSite, caller: Client, id: Id) -> MemoryRow:
    """Undo a forget."""
    return memory_row(await in_memory(site, lambda own: own.restore(MemoryId(id)), caller.reach))


@router.get("/api/bootstrap")
async def bootstrap(
    site: AtSite,
    caller: Client,
    max_tokens: Annotated[int, Query(ge=0, le=20_000)] = 2_000,
    include_last_session: bool = True,
    top_memories: Annotated[int, Query(ge=0, le=100)] = 10,
    recency_bias: Annotated[float, Query(ge=0, le=1)] = 0.3,
    always_include_tags: Annotated[tuple[Name, ...], Query()] = ALWAYS,
) -> BootstrapText:
    """What to tell an agent at the beginning of a session: the last one, and the memories that matter most."""
    async with site.backend.database.connection() as conn:
        told = await bootstrap_context(
            conn,
            site.backend.owner.id,
            site.backend.clock.now(),
            max_tokens=max_tokens,
            include_last_session=include_last_session,
            top_memories=top_memories,
            recency_bias=recency_bias,
            always_include_tags=always_include_tags,
            reach=caller.reach,
        )
    return BootstrapText(told.text)


@router.post("/api/context")
async def context(site: AtSite, caller: Client, said: ContextRequest) -> Context:
    """What an agent should know before it answers a message."""
    if not said.message.strip():
        raise Refused(400, "empty_message", "message: say what is being talked about.", param="message")
    told, owner = Bootstrap(), site.backend.owner.id
    if said.bootstrap:
        async with site.backend.database.connection() as conn:
            told = await bootstrap_context(
                conn, owner, site.backend.clock.now(), max_tokens=said.max_tokens, reach=caller.reach
            )
    shown = {memory.id for memory in told.shown}
    searching = MemorySearch(site.backend.database, site.backend.embedder)
    found = await searching.find(owner, said.message, scope=Where.ALL, k=RECALLED_ROWS + len(shown), reach=caller.reach)
    fitting = [hit for hit in found.hits if hit.memory.id not in shown and (hit.cosine or hit.words >= LEAST_WORDS)]
    near = [hit.memory for hit in fitting[:RECALLED_ROWS]]
    return Context(told.text, "" if found.weak else recall_block(near, RECALLED_TOKENS))


def _filter(caller: Caller, asked: SearchRequest) -> MemoryFilter:
    if asked.agent and not caller.reach.everything and asked.agent != caller.reach.agent:
        message = f"This token finds what {caller.reach.agent} remembers."
        raise Refused(403, "wrong_agent", message, param="agent", type="permission_error")
    return MemoryFilter(
        kinds=asked.kinds,
        categories=asked.categories,
        tags=tuple(tag.casefold() for tag in asked.tags),
        agent=asked.agent,
        since=asked.since,
        until=asked.until,
        at_most=Label.UNTRUSTED if asked.include_untrusted else Label.KNOWN,
        superseded=asked.superseded,
        min_importance=asked.min_importance,
    )


def _found(hit: MemoryHit) -> FoundRow:
    return FoundRow(memory_row(hit.memory), hit.score, hit.words, hit.cosine)
