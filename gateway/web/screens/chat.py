"""The chat: the owner's conversation, streamed to every page that shows it."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Header, Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from gateway.domain.inbound import Inbound
from gateway.flow.people import PAGE
from gateway.web import files as kept
from gateway.web.accept import KEY, MAX_TEXT, accept, outcome
from gateway.web.access import Caller, by_cookie, owner_as_sender, public, signed_in
from gateway.web.pages import Nav, Screen
from gateway.web.screens import setup
from gateway.web.site import AtSite
from gateway.web.sse import EventStream

ADDRESS = PAGE

router = APIRouter()
screen = Screen(Nav("/", "Chat", "message-square", 0), router)


@router.get("/", dependencies=[Depends(public)])
async def page(request: Request, site: AtSite) -> Response:
    """The screen; whoever is not signed in is shown how to."""
    if await by_cookie(request) is None:
        return RedirectResponse("/login", 303)
    if setup.comes_first(request, site):
        return RedirectResponse("/setup", 303)
    return site.pages.page(
        request,
        "chat.html",
        title="Chat",
        nav=site.nav,
        here="/",
        owner=site.backend.owner.name,
        commands=site.backend.commands,
        most=kept.MAX_FILES,
    )


@router.get("/chat/events")
async def events(
    site: AtSite,
    caller: Annotated[Caller, Depends(signed_in)],
    after: Annotated[str | None, Query(max_length=64)] = None,
    last_event_id: Annotated[str | None, Header(max_length=64)] = None,
) -> Response:
    """Patches for the page; resumes after the last one it has seen."""
    return EventStream(site.topics.follow(ADDRESS, last_event_id or after), site.rights.hold(caller.session))


@router.post("/chat", status_code=202)
async def send(
    site: AtSite,
    _caller: Annotated[Caller, Depends(signed_in)],
    client_id: Annotated[str, Form(min_length=1, max_length=100, pattern=KEY)],
    text: Annotated[str, Form(max_length=MAX_TEXT)] = "",
    files: Annotated[list[UUID] | None, Form(max_length=kept.MAX_FILES)] = None,
) -> Response:
    """Take a message; the answer comes with the events. The same `client_id` is taken once."""
    now, sender = site.backend.clock.now(), owner_as_sender(site.backend)
    attached = await kept.attachments_for(site, files or ())
    accepted = await accept(site, Inbound(ADDRESS, sender, text, client_id, now, attachments=attached))
    return JSONResponse(outcome(accepted), 202)


kept.add_routes(router, "/chat/files", ADDRESS.channel, sends=signed_in, reads=signed_in)
