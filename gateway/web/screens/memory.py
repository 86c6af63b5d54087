"""Memory: memories with their sources, to search, correct, pin and forget."""

from typing import Annotated

from fastapi import Depends, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup

from gateway.config.data.erasures import ErasureRequest, read_request, save_request
from gateway.domain.ids import MemoryId
from gateway.domain.memory.erasing import check_words
from gateway.domain.memory.memories import DEFAULT_AGENT, Category, Kind, Memory, NewMemory
from gateway.domain.people.credentials import Scope
from gateway.domain.principals import Role
from gateway.store.people import tokens
from gateway.web import memory_rows
from gateway.web.auth.access import OWNER, VISITOR
from gateway.web.http.bodies import Text
from gateway.web.http.errors import Refused
from gateway.web.memory_rows import MemoryQuery, in_memory
from gateway.web.pages import Screen
from gateway.web.screens.chat import own_message
from gateway.web.site import AtSite, RowId, Site

MOST_SOURCES = 20
"""Source messages that are listed for a memory."""

screen = Screen("/memory", "Memory", "brain", 30)

Chosen = Annotated[list[memory_rows.Id], Query(alias="id", min_length=1, max_length=memory_rows.MOST_CHOSEN)]


def written(
    text: Annotated[Text, Form(max_length=100_000)],
    category: Annotated[Category, Form()] = Category.CONTEXT,
    importance: Annotated[float, Form(ge=0, le=1)] = 0.5,
    tags: Annotated[Text, Form(max_length=2_000)] = "",
) -> NewMemory:
    """The memory in a form of the owner."""
    return NewMemory(text, category, importance, tuple(filter(None, map(str.strip, tags.split(",")))), origin="user")


Written = Annotated[NewMemory, Depends(written)]


@screen.get("/memory", dependencies=VISITOR)
async def page(request: Request, site: AtSite, query: Annotated[MemoryQuery, Query()]) -> Response:
    """The screen, with the rows of its query."""
    programs = {row.agent for row in await tokens.list_all(site.database) if Scope.MEMORY in row.scopes}
    return site.screen(
        request,
        screen,
        "memory.html",
        asked=query,
        kinds={Kind.MEMORY: "memories", Kind.TURN: "messages", Kind.SUMMARY: "summaries", Kind.CHUNK: "files"},
        categories={each: each for each in Category},
        agents={DEFAULT_AGENT: "your agent"} | {name: name for name in sorted(filter(None, programs))},
        found=await _render_rows(site, query),
        erasure=site.pages.part("erasure", read_request(site.files.data)),
    )


@screen.get("/memory/rows", dependencies=OWNER)
async def rows(site: AtSite, query: Annotated[MemoryQuery, Query()]) -> HTMLResponse:
    """The rows that match while the query is typed."""
    return HTMLResponse(await _render_rows(site, query))


@screen.get("/memory/used", dependencies=OWNER)
async def used_in_answer(site: AtSite, ids: Chosen) -> HTMLResponse:
    """The memories that an answer used, as they are now."""
    rows = [memory_rows.row_of(memory) for memory in await memory_rows.get_rows(site, ids)]
    return HTMLResponse(site.pages.part("used", rows, len(set(ids)) - len(rows)))


@screen.get("/memory/said/{message}", dependencies=OWNER)
async def said(site: AtSite, message: RowId) -> Response:
    """The conversation around a message."""
    row = await own_message(site, message)
    return RedirectResponse(f"/c/{row.session_id}?at={message}#m{message}", 303)


@screen.get("/memory/merge", dependencies=OWNER)
async def merging(site: AtSite, ids: Chosen) -> HTMLResponse:
    """The form that makes one memory of several."""
    chosen = await memory_rows.get_rows(site, ids)
    tags = dict.fromkeys(tag for memory in chosen for tag in memory.tags)
    return HTMLResponse(site.pages.part("merging", chosen, tags, list(Category)))


@screen.post("/memory/merge", status_code=204, dependencies=OWNER)
async def merge(site: AtSite, ids: Chosen, new: Written) -> None:
    """Replace several memories by one."""
    await in_memory(site, lambda own: own.merge([MemoryId(id) for id in ids], new))


@screen.post("/memory/erasure/dismiss", dependencies=OWNER)
async def dismiss(site: AtSite) -> HTMLResponse:
    """Remove the receipt."""
    save_request(site.files.data, ErasureRequest())
    return HTMLResponse()


@screen.post("/memory/{id}/erase", dependencies=OWNER)
async def erase(
    site: AtSite,
    id: RowId,
    also: Annotated[Text, Form(max_length=2_000)] = "",
    confirmed: Annotated[bool, Form()] = False,
) -> HTMLResponse:
    """Restart the gateway to erase a memory: while it runs, journals and caches would write it again."""
    words = tuple(line.strip() for line in also.splitlines() if line.strip())
    check_words(words)
    await in_memory(site, lambda own: own.get(MemoryId(id)))
    if not confirmed:
        raise Refused(400, "unconfirmed", "Tick that it is to be erased permanently.", param="confirmed")
    save_request(site.files.data, request := ErasureRequest(memory=id, also=words))
    site.health.restart()
    return HTMLResponse(site.pages.part("erasure", request))


@screen.get("/memory/{id}", dependencies=OWNER)
async def details(site: AtSite, id: RowId) -> HTMLResponse:
    """The sources of a row, and the form that corrects it."""
    memory, sources = await in_memory(site, lambda own: own.learned(MemoryId(id)))
    return HTMLResponse(site.pages.part("memory_details", memory, sources[:MOST_SOURCES], list(Category)))


@screen.post("/memory/{id}", dependencies=OWNER)
async def correct(site: AtSite, id: RowId, new: Written) -> HTMLResponse:
    """Correct a memory; the old one stays as its predecessor."""
    return _row(site, await in_memory(site, lambda own: own.correct(MemoryId(id), new)))


@screen.post("/memory/{id}/pin", dependencies=OWNER)
async def pin(site: AtSite, id: RowId, pinned: bool) -> HTMLResponse:
    """Pin a memory, so that every new conversation begins with it, or unpin it."""
    return _row(site, await in_memory(site, lambda own: own.pin(MemoryId(id), pinned=pinned)))


@screen.post("/memory/{id}/forget", dependencies=OWNER)
async def forget(site: AtSite, id: RowId, agreed: str | None = None) -> HTMLResponse:
    """Forget a memory; if more than itself goes, ask first, and do it with the yes for exactly that (`agreed`)."""
    going, done = await in_memory(site, lambda own: own.forget_agreed(MemoryId(id), agreed))
    row, stays = memory_rows.row_of(going.memory), going.stays(Role.OWNER)
    return HTMLResponse(site.pages.part("forgotten" if done else "forgetting", row, going, stays))


@screen.post("/memory/{id}/restore", dependencies=OWNER)
async def restore(site: AtSite, id: RowId) -> HTMLResponse:
    """Restore a forgotten memory."""
    return _row(site, await in_memory(site, lambda own: own.restore(MemoryId(id))))


def _row(site: Site, memory: Memory) -> HTMLResponse:
    return HTMLResponse(site.pages.part("memory", memory_rows.row_of(memory)))


async def _render_rows(site: Site, query: MemoryQuery) -> Markup:
    return site.pages.part("memories", await memory_rows.find_rows(site, query), query)
