"""Conversations: what was talked about, found again, read, named, taken along and gone on with."""

import asyncio
from typing import Annotated
from urllib.parse import quote
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup

from gateway.domain.conversation.inbound import Inbound
from gateway.domain.ids import SessionId
from gateway.flow.journal.export import Format, export, file_name
from gateway.store.transcript import attachments, conversations, messages
from gateway.store.transcript.conversations import Conversation
from gateway.web.accept import accept
from gateway.web.auth.access import by_cookie, owner_as_sender, public, signed_in
from gateway.web.conversations.listing import Asked, Listing, look
from gateway.web.conversations.reading import read
from gateway.web.http.errors import Refused
from gateway.web.http.fields import Text
from gateway.web.pages import Nav, Screen
from gateway.web.screens.chat import ADDRESS
from gateway.web.site import AtSite, Site

HERE = "/conversations"
LONGEST_TITLE = 200

router = APIRouter()
screen = Screen(Nav(HERE, "Conversations", "history", 1), router)

OWNER = [Depends(signed_in)]
Place = Annotated[int | None, Query(ge=1, lt=2**31)]
Message = Annotated[int | None, Query(ge=1, lt=2**63)]


@router.get(HERE, dependencies=[Depends(public)])
async def page(request: Request, site: AtSite, asked: Annotated[Asked, Query()]) -> Response:
    """The list, with what its address asks for."""
    if await by_cookie(request) is None:
        return RedirectResponse("/login", 303)
    found = _rows(site, await look(site, asked), asked)
    return site.pages.page(
        request, "conversations.html", title="Conversations", nav=site.nav, here=HERE, asked=asked, found=found
    )


@router.get(f"{HERE}/rows", dependencies=OWNER)
async def rows(site: AtSite, asked: Annotated[Asked, Query()]) -> HTMLResponse:
    """What is found, while it is being typed."""
    return HTMLResponse(_rows(site, await look(site, asked), asked))


@router.get(f"{HERE}/{{id}}", dependencies=[Depends(public)])
async def conversation(
    request: Request, site: AtSite, id: UUID, at: Message = None, first: Annotated[Place, Query(alias="from")] = None
) -> Response:
    """One conversation: its end, the stretch around a message, or the stretch from a place on."""
    if await by_cookie(request) is None:
        return RedirectResponse("/login", 303)
    of = await _of(site, id)
    reading = await read(site, of.id, first, at)
    return site.pages.page(
        request, "conversation.html", title=of.title, nav=site.nav, here=HERE, of=of, reading=reading
    )


@router.get(f"{HERE}/{{id}}/export", dependencies=OWNER)
async def download(site: AtSite, id: UUID, form: Format = "markdown") -> Response:
    """The whole conversation as a file."""
    of = await _of(site, id)
    async with site.backend.database.connection() as conn:
        said = await attachments.joined(conn, await messages.told_until(conn, of.id))
    saved_as = f"attachment; filename*=UTF-8''{quote(file_name(of, form), safe='')}"
    text = await asyncio.to_thread(export, of, said, form)
    kind = "text/markdown" if form == "markdown" else "application/json"
    text, _ = site.backend.mask.leaks.clean(text)
    return Response(text, media_type=kind, headers={"Content-Disposition": saved_as})


@router.post(f"{HERE}/{{id}}/title", status_code=204, dependencies=OWNER)
async def rename(site: AtSite, id: UUID, title: Annotated[Text, Form(max_length=LONGEST_TITLE)] = "") -> None:
    """Name it; without a name it gets the title by rule again."""
    of = await _of(site, id)
    await site.backend.database.run(lambda tx: conversations.rename(tx, of.id, title))


@router.post(f"{HERE}/{{id}}/resume", dependencies=OWNER)
async def resume(site: AtSite, id: UUID) -> Response:
    """Go on with it in the web chat: the command does so, and says what came of it there."""
    now, sender = site.backend.clock.now(), owner_as_sender(site.backend)
    await accept(site, Inbound(ADDRESS, sender, f"/resume {id}", str(uuid4()), now))
    return RedirectResponse("/", 303)


def _rows(site: Site, listing: Listing, asked: Asked) -> Markup:
    return site.pages.piece("conversation_rows.html", listing=listing, asked=asked)


async def _of(site: Site, id: UUID) -> Conversation:
    async with site.backend.database.connection() as conn:
        found = await conversations.these(conn, site.backend.owner.id, [SessionId(id)])
    if not found:
        raise Refused(404, "not_found", f"There is no conversation {id}.")
    return found[SessionId(id)]
