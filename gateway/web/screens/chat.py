"""Chats on the page: each has an address of its own and is streamed to every page that shows it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, get_args
from uuid import UUID, uuid4

from fastapi import Form, Header, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from markupsafe import escape
from pydantic import StringConstraints

from gateway.domain.conversation.inbound import TEMPORARY, Address
from gateway.domain.ids import MessageId
from gateway.domain.principals import Label
from gateway.domain.settings import ThinkingLevel
from gateway.flow.people import OWNER_PAGE
from gateway.store.delivery import addresses, inbox
from gateway.store.files import attachments
from gateway.store.transcript import conversations, messages, sessions
from gateway.store.transcript.conversations import Conversation
from gateway.store.transcript.messages import MessageRow
from gateway.web import files as chat_files
from gateway.web.auth.access import OWNER, VISITOR, SignedIn, signed_in
from gateway.web.http.errors import Refused
from gateway.web.live.sse import EventStream
from gateway.web.pages import Screen
from gateway.web.screens import setup
from gateway.web.site import MAX_MESSAGE_CHARS, PRINTABLE, AtSite, RowId, Site, accept_from_owner, accepted_json
from gateway.workspace.files.paths import WorkspaceError

ADDRESS = OWNER_PAGE
"""The first chat; the others are threads of it."""

screen = Screen("/", "Chat", "message-square", 0)


Place = Annotated[str, StringConstraints(pattern=rf"^({TEMPORARY})?[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$")]
"""The thread of a chat on the page."""


def address_of(chat: str | None) -> Address:
    """The address of a chat on the page; None is the first one."""
    return replace(ADDRESS, thread=chat or "")


async def open_in(site: Site, chat: str | None) -> Conversation | None:
    """The conversation that a chat on the page has open; None before something is said."""
    async with site.database.connection() as conn:
        session = await sessions.current(conn, address_of(chat))
        return (await conversations.these(conn, site.owner.id, [session])).get(session) if session else None


@screen.get("/", dependencies=VISITOR)
async def page(request: Request, site: AtSite) -> Response:
    """The first chat; Setup comes before it while no model is connected."""
    return RedirectResponse("/setup", 303) if setup.comes_first(request, site) else await show(request, site, None)


@screen.get("/c/new", dependencies=VISITOR)
async def new(request: Request, site: AtSite, temporary: bool = False) -> Response:
    """A chat, perhaps a temporary one, that begins with its first message."""
    return await show(request, site, f"{TEMPORARY if temporary else ''}{uuid4()}", fresh=True)


async def show(request: Request, site: Site, chat: str | None, *, fresh: bool = False) -> Response:
    """A chat's page; a `fresh` one is not stored yet."""
    model, of = site.settings.model(), await open_in(site, chat)
    return site.screen(
        request,
        screen,
        "chat.html",
        chat=chat or "",
        fresh=fresh,
        temporary=address_of(chat).temporary,
        called=of.title if of else "",
        owner=site.owner.name,
        most=chat_files.MAX_FILES,
        models=model.chain if model else (),
        choices=model.choices if model else (),
        levels=get_args(ThinkingLevel),
        offers_zone=await site.chat.zones.due(site.owner.id),
        **await _chosen(site, chat),
    )


@screen.get("/chat/chosen", dependencies=OWNER)
async def chosen(site: AtSite, chat: Place | None = None) -> HTMLResponse:
    """The button with the model of this chat, until when, and how much it thinks, as they are now."""
    return HTMLResponse(site.pages.piece("chosen.html", **await _chosen(site, chat)))


async def _chosen(site: Site, chat: str | None) -> Mapping[str, object]:
    usual = site.settings.model()
    at = await site.database.read(lambda conn: addresses.find(conn, address_of(chat)))
    model = site.settings.chosen_model(at, True) if at else None
    return {
        "model": model or (usual.active if usual else ""),
        "until": at.model_until if at and model else None,
        "level": (at and at.thinking) or (usual and usual.thinking),
    }


@screen.get("/chat/events")
async def events(
    site: AtSite,
    caller: SignedIn,
    chat: Place | None = None,
    after: Annotated[str | None, Query(max_length=64)] = None,
    last_event_id: Annotated[str | None, Header(max_length=64)] = None,
) -> Response:
    """Patches for the page; resumes after the last one it received."""
    return EventStream(site.topics.follow(address_of(chat), last_event_id or after), site.rights.hold(caller.session))


@screen.post("/chat", status_code=202, dependencies=OWNER)
async def send(
    site: AtSite,
    client_id: Annotated[str, Form(min_length=1, max_length=100, pattern=PRINTABLE)],
    text: Annotated[str, Form(max_length=MAX_MESSAGE_CHARS)] = "",
    files: Annotated[list[UUID] | None, Form(max_length=chat_files.MAX_FILES)] = None,
    again: Annotated[int | None, Form()] = None,
    chat: Annotated[Place | None, Form()] = None,
) -> Response:
    """Accept a message, or repeat an earlier one; the answer comes with the events. A `client_id` counts once."""
    if again is not None:
        row = await own_message(site, again)
        text, files = row.text, [file.id for file in row.attached if file.id]
        as_trusted = files or row.label is Label.OWNER  # else what it quotes would be taken for the owner's
        async with site.database.connection() as conn:
            if row.kind != "user" or not as_trusted or not await inbox.own_words(conn, row.id):
                raise Refused(403, "not_yours", "Only your own words can be sent again.")
    attached = await chat_files.attachments_for(site, files or ())
    return JSONResponse(accepted_json(await accept_from_owner(site, address_of(chat), text, client_id, attached)), 202)


@screen.post("/chat/zone", status_code=204, dependencies=OWNER)
async def settle_zone(site: AtSite, zone: Annotated[str, Form(max_length=64)] = "") -> None:
    """Save the browser's time zone; if it is empty, never offer that again."""
    try:
        await site.chat.zones.settle(site.owner.id, zone)
    except ValueError as error:
        raise Refused(400, "invalid_value", str(error), param="zone") from error
    except WorkspaceError as error:
        raise Refused(409, "owner_must_act", f"USER.md could not be changed: {error}") from error


@screen.get("/chat/messages/{message}/text", dependencies=OWNER)
async def text(site: AtSite, message: RowId) -> Response:
    """The original text of a message, for the clipboard."""
    return PlainTextResponse((await own_message(site, message)).text, headers={"Content-Disposition": "attachment"})


@screen.get("/chat/messages/{message}/thinking", dependencies=OWNER)
async def thinking(site: AtSite, message: RowId) -> Response:
    """The model's thinking before one of the owner's messages, as far as that is kept."""
    thought = await site.database.read(lambda conn: conversations.thought(conn, site.owner.id, MessageId(message)))
    words = escape(thought.text) if thought else "This is no longer kept (retention.thinking)."
    return HTMLResponse(f"<div>{words}</div>")


async def own_message(site: Site, id: int) -> MessageRow:
    """A message of the owner's conversations; raises `Refused`."""
    async with site.database.connection() as conn:
        row = await messages.get(conn, MessageId(id))
        if row is None or row.principal_id != site.owner.id:
            raise Refused(404, "not_found", f"There is no message {id}.")
        [row] = await attachments.with_attachments(conn, [row])
        return row


chat_files.add_routes(screen, "/chat/files", ADDRESS.channel, sends=signed_in, reads=signed_in)
