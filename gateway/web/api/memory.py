"""The memory for other programs; each sees and changes as much as its token allows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from gateway.agent.memory.search import (
    ALWAYS,
    LEAST_WORDS,
    RECALLED_ROWS,
    RECALLED_TOKENS,
    MemorySearch,
    bootstrap_context,
)
from gateway.domain.ids import MemoryId
from gateway.domain.memory.memories import Category, Kind, Memory, MemoryFilter, MemoryHit, NewMemory, SearchMode
from gateway.domain.memory.memories import SearchScope as Where
from gateway.domain.people.credentials import Scope
from gateway.domain.principals import Label
from gateway.memory.wording import Bootstrap, MemoryRow, fold_copies, memory_row, outdated, recall_block
from gateway.store.memory import memories
from gateway.store.memory.memories import MemorySource
from gateway.web.auth.access import Caller, needs
from gateway.web.http.bodies import Moment, Name, RequestBody, Text
from gateway.web.http.errors import Refused
from gateway.web.memory_rows import in_memory
from gateway.web.site import AtSite, RowId

router = APIRouter()
Client = Annotated[Caller, Depends(needs(Scope.MEMORY))]
Most = Annotated[int, Query(ge=1, le=200)]
_FILTER_FIELDS = {"kinds", "categories", "agent", "since", "until", "superseded", "min_importance"}


class SearchRequest(RequestBody):
    """A search; it finds rows of `since` ≤ time < `until`."""

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


class NewMemoryRequest(RequestBody):
    """A new memory."""

    text: Text
    category: Category = Category.CONTEXT
    importance: float = Field(0.5, ge=0, le=1)
    tags: tuple[Name, ...] = ()
    pinned: bool = False
    event_at: Moment | None = None
    supersedes: int | None = Field(None, ge=1, lt=2**63)


class MemoryEdit(RequestBody):
    """The changes of a memory; absent fields stay."""

    text: Text | None = None
    category: Category | None = None
    importance: float | None = Field(None, ge=0, le=1)
    tags: tuple[Name, ...] | None = None
    pinned: bool | None = None


class BootstrapQuery(BaseModel):
    """The size and the contents of a bootstrap text."""

    max_tokens: int = Field(2_000, ge=0, le=20_000)
    include_last_session: bool = True
    top_memories: int = Field(10, ge=0, le=100)
    recency_bias: float = Field(0.3, ge=0, le=1)
    always_include_tags: tuple[Name, ...] = ALWAYS


class ContextRequest(RequestBody):
    """The message that the context is for."""

    message: Text
    bootstrap: bool = True
    max_tokens: int = Field(2_000, ge=0, le=20_000)


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A hit; `words` is its share of the query's rare words, `outdated` what holds in its place, if it was replaced."""

    memory: MemoryRow
    score: float
    words: float
    cosine: float | None
    outdated: str | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search; `left_out` counts untrusted rows, `note` says why only words were compared."""

    hits: list[FoundRow]
    mode: SearchMode
    weak: bool
    left_out: int
    note: str


@dataclass(frozen=True, slots=True)
class Learned:
    """A memory with the messages it was learned from."""

    memory: MemoryRow
    sources: Sequence[MemorySource]


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory; `new` is false if it existed already."""

    memory: MemoryRow
    new: bool


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A forgotten memory, and the rows that were forgotten with it."""

    memory: MemoryRow
    with_it: Sequence[MemoryRow]


@dataclass(frozen=True, slots=True)
class BootstrapText:
    """A text for a prompt; may be empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Context:
    """Texts for a prompt: for the beginning of a session, and about the message."""

    bootstrap: str
    recalled: str


@router.post("/api/memory/search")
async def search(site: AtSite, caller: Client, request: SearchRequest) -> SearchResult:
    """Search memory; by words and meaning where there is an embedding model, else by words."""
    if not request.query.strip():
        raise Refused(400, "empty_query", "query: must not be empty.", param="query")
    if request.since and request.until and request.since >= request.until:
        raise Refused(400, "empty_window", "since must be before until.", param="since")
    searching, where = MemorySearch(site.database, site.chat.embedder), _filter(caller, request)
    asked = request.model_dump(include={"mode", "scope", "session"}) | {"k": request.max_results}
    found = await searching.find(
        site.owner.id, request.query, filter=where, zone=site.zone, reach=caller.reach, **asked
    )
    hits = [_found_row(hit, found.replaced.get(hit.memory.id), site.zone) for hit in found.hits]
    return SearchResult(hits, found.mode, found.weak, found.left_out, found.note)


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
    """List memories, the newest first."""
    which = MemoryFilter(
        kinds=(kind,),
        categories=(category,) if category else (),
        tags=(tag.casefold(),) if tag else (),
        pinned=pinned,
        at_most=Label.UNTRUSTED,
    )
    async with site.database.connection() as conn:
        found = [
            memory
            for part in caller.reach.filters(which)
            for memory in await memories.listed(conn, site.owner.id, part, offset + limit)
        ]
    found.sort(key=lambda memory: -memory.id)
    return [memory_row(memory) for memory in found[offset : offset + limit]]


@router.post("/api/memory", status_code=201)
async def remember(site: AtSite, caller: Client, new: NewMemoryRequest) -> Stored:
    """Store a memory; one that exists already is not stored twice."""
    label, origin = (Label.OWNER, "user") if caller.reach.everything else (Label.UNTRUSTED, "api")
    memory = NewMemory(**dict(new), label=label, origin=origin)
    stored, is_new = await in_memory(site, lambda own: own.remember(memory), caller.reach)
    return Stored(memory_row(stored), is_new)


@router.get("/api/memory/{id}")
async def get(site: AtSite, caller: Client, id: RowId) -> Learned:
    """Get a memory with the messages it was learned from."""
    memory, sources = await in_memory(site, lambda own: own.learned(MemoryId(id)), caller.reach)
    return Learned(memory_row(memory), sources)


@router.patch("/api/memory/{id}")
async def edit(site: AtSite, caller: Client, id: RowId, change: MemoryEdit) -> MemoryRow:
    """Change a memory or a summary. For a correction, store a new memory with `supersedes` instead."""
    changed = await in_memory(site, lambda own: own.edit(MemoryId(id), **dict(change)), caller.reach)
    return memory_row(changed)


@router.delete("/api/memory/{id}")
async def forget(site: AtSite, caller: Client, id: RowId) -> Forgotten:
    """Forget a memory, with the rows that state it or that it replaced."""
    going = await in_memory(site, lambda own: own.forget(MemoryId(id)), caller.reach)
    return Forgotten(memory_row(going.memory), [memory_row(row) for row in going.stating])


@router.post("/api/memory/{id}/restore")
async def restore(site: AtSite, caller: Client, id: RowId) -> MemoryRow:
    """Restore a forgotten memory."""
    return memory_row(await in_memory(site, lambda own: own.restore(MemoryId(id)), caller.reach))


@router.get("/api/bootstrap")
async def bootstrap(site: AtSite, caller: Client, query: Annotated[BootstrapQuery, Query()]) -> BootstrapText:
    """Get a text for the beginning of an agent's session: the last session, and the most important memories."""
    owner, now, zone = site.owner.id, site.clock.now(), site.zone
    async with site.database.connection() as conn:
        made = await bootstrap_context(conn, owner, now, **dict(query), reach=caller.reach, zone=zone)
    return BootstrapText(made.text)


@router.post("/api/context")
async def context(site: AtSite, caller: Client, request: ContextRequest) -> Context:
    """Get texts that help an agent to answer a message."""
    if not request.message.strip():
        raise Refused(400, "empty_message", "message: must not be empty.", param="message")
    start, owner, zone = Bootstrap("", Label.OWNER), site.owner.id, site.zone
    if request.bootstrap:
        async with site.database.connection() as conn:
            start = await bootstrap_context(
                conn, owner, site.clock.now(), max_tokens=request.max_tokens, reach=caller.reach, zone=zone
            )
    in_bootstrap = {memory.id for memory in start.shown}
    searching = MemorySearch(site.database, site.chat.embedder)
    most = RECALLED_ROWS + len(in_bootstrap)
    found = await searching.find(owner, request.message, scope=Where.ALL, k=most, zone=zone, reach=caller.reach)
    new = [hit for hit in found.hits if hit.memory.id not in in_bootstrap]
    near = fold_copies([hit.memory for hit in new if hit.cosine or hit.words >= LEAST_WORDS], RECALLED_ROWS)
    return Context(start.text, "" if found.weak else recall_block(near, RECALLED_TOKENS, zone, found.replaced))


def _filter(caller: Caller, request: SearchRequest) -> MemoryFilter:
    if request.agent and not caller.reach.everything and request.agent != caller.reach.agent:
        raise Refused(403, "wrong_agent", f"This token finds what {caller.reach.agent} remembers.", param="agent")
    return MemoryFilter(
        **request.model_dump(include=_FILTER_FIELDS),
        tags=tuple(tag.casefold() for tag in request.tags),
        at_most=Label.UNTRUSTED if request.include_untrusted else Label.KNOWN,
    )


def _found_row(hit: MemoryHit, now: Memory | None, zone: str | None) -> FoundRow:
    return FoundRow(memory_row(hit.memory), hit.score, hit.words, hit.cosine, outdated(now, zone) if now else None)
