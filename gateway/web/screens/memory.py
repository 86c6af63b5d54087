"""Memory: what is remembered, where it comes from, and the owner's hand on it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup

from gateway.agent.memory.remember import Remembering
from gateway.domain.ids import MemoryId, MessageId
from gateway.domain.memory.memories import DEFAULT_AGENT, Category, Kind, Memory, NewMemory
from gateway.domain.people.credentials import Scope
from gateway.store.memory import memories
from gateway.store.people import tokens
from gateway.store.transcript import messages
from gateway.web.auth.access import by_cookie, public, signed_in
from gateway.web.components import memory_rows
from gateway.web.components.memory_rows import MemoryQuery, in_memory
from gateway.web.http.bodies import Text
from gateway.web.http.errors import Refused
from gateway.web.pages import Nav, Screen
from gateway.web.site import AtSite, Site

MOST_SOURCES = 20
"""Messages named as those that something was learned from."""

router = APIRouter()
screen = Screen(Nav("/memory", "Memory", "brain", 2), router)

Id = Annotated[int, Path(ge=1, lt=2**63)]
Chosen = Annotated[list[memory_rows.Id], Query(alias="id", min_length=1, max_length=memory_rows.MOST_CHOSEN)]
OWNER = [Depends(signed_in)]


def written(
    text: Annotated[Text, Form(max_length=100_000)],
    category: Annotated[Category, Form()] = Category.CONTEXT,
    importance: Annotated[float, Form(ge=0, le=1)] = 0.5,
    tags: Annotated[Text, Form(max_length=2_000)] = "",
) -> NewMemory:
    """What the owner wrote into a form."""
    return NewMemory(text, category, importance, tuple(filter(None, map(str.strip, tags.split(",")))), origin="user")


Written = Annotated[NewMemory, Depends(written)]


@router.get("/memory", dependencies=[Depends(public)])
async def page(request: Request, site: AtSite, looked_for: Annotated[MemoryQuery, Query()]) -> Response:
    """The screen, with what its address asks for."""
    if await by_cookie(request) is None:
        return RedirectResponse("/login", 303)
    programs = {row.agent for row in await tokens.list_all(site.backend.database) if Scope.MEMORY in row.scopes}
    return site.pages.page(
        request,
        "memory.html",
        title="Memory",
        nav=site.nav,
        here="/memory",
        asked=looked_for,
        kinds={Kind.MEMORY: "memories", Kind.TURN: "messages", Kind.SUMMARY: "summaries", Kind.CHUNK: "files"},
        categories={each: each for each in Category},
        agents={DEFAULT_AGENT: "your agent"} | {name: name for name in sorted(filter(None, programs))},
        found=await _found(site, looked_for),
    )


@router.get("/memory/rows", dependencies=OWNER)
async def rows(site: AtSite, looked_for: Annotated[MemoryQuery, Query()]) -> HTMLResponse:
    """What is found, while it is being typed."""
    return HTMLResponse(await _found(site, looked_for))


@router.get("/memory/used", dependencies=OWNER)
async def used_in_answer(site: AtSite, ids: Chosen) -> HTMLResponse:
    """The memories that an answer used, as they are now."""
    kept = await memory_rows.get_rows(site, ids)
    return HTMLResponse(
        site.pages.part("used", [memory_rows.row_of(memory) for memory in kept], len(set(ids)) - len(kept))
    )


@router.get("/memory/said/{message}", dependencies=OWNER)
async def said(site: AtSite, message: Id) -> Response:
    """The conversation around a message."""
    async with site.backend.database.connection() as conn:
        row = await messages.get(conn, MessageId(message))
    if row is None or row.principal_id != site.backend.owner.id:
        raise Refused(404, "not_found", f"There is no message {message}.")
    return RedirectResponse(f"/conversations/{row.session_id}?at={message}#m{message}", 303)


@router.get("/memory/merge", dependencies=OWNER)
async def merging(site: AtSite, ids: Chosen) -> HTMLResponse:
    """The form that makes one memory of several."""
    chosen = await memory_rows.get_rows(site, ids)
    tags = dict.fromkeys(tag for memory in chosen for tag in memory.tags)
    return HTMLResponse(site.pages.part("merging", chosen, tags, list(Category)))


@router.post("/memory/merge", status_code=204, dependencies=OWNER)
async def merge(site: AtSite, ids: Chosen, new: Written) -> None:
    """Put one memory in the place of several."""
    await in_memory(site, lambda own: own.merge([MemoryId(id) for id in ids], new))


@router.get("/memory/{id}", dependencies=OWNER)
async def details(site: AtSite, id: Id) -> HTMLResponse:
    """Where a row comes from, and the form that corrects it."""

    async def read(own: Remembering) -> Markup:
        memory = await own.get(MemoryId(id))
        sources = await memories.sources(own.tx, own.principal, memory.id)
        return site.pages.part("memory_details", memory, sources[:MOST_SOURCES], list(Category))

    return HTMLResponse(await in_memory(site, read))


@router.post("/memory/{id}", dependencies=OWNER)
async def correct(site: AtSite, id: Id, new: Written) -> HTMLResponse:
    """Say it in other words; the old ones stay behind them."""
    return _row(site, await in_memory(site, lambda own: own.correct(MemoryId(id), new)))


@router.post("/memory/{id}/pin", dependencies=OWNER)
async def pin(site: AtSite, id: Id, pinned: bool) -> HTMLResponse:
    """Tell it in every new conversation, or no more."""
    return _row(site, await in_memory(site, lambda own: own.pin(MemoryId(id), pinned=pinned)))


@router.post("/memory/{id}/forget", dependencies=OWNER)
async def forget(site: AtSite, id: Id) -> HTMLResponse:
    """Leave it out from now on."""
    memory = await in_memory(site, lambda own: own.forget(MemoryId(id)))
    return HTMLResponse(site.pages.part("forgotten", memory_rows.row_of(memory)))


@router.post("/memory/{id}/restore", dependencies=OWNER)
async def restore(site: AtSite, id: Id) -> HTMLResponse:
    """Take a forget back."""
    return _row(site, await in_memory(site, lambda own: own.restore(MemoryId(id))))


def _row(site: Site, memory: Memory) -> HTMLResponse:
    return HTMLResponse(site.pages.part("memory", memory_rows.row_of(memory)))


async def _found(site: Site, looked_for: MemoryQuery) -> Markup:
    return site.pages.part("memories", await memory_rows.find_rows(site, looked_for), looked_for)
