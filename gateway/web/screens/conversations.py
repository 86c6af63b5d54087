"""Conversations: listed, searched, read, named, pinned, archived, deleted, exported and continued, each at /c/ID."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import Depends, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gateway.domain.ids import MessageId, SessionId
from gateway.domain.memory.memories import Kind, MemoryFilter, MemoryHit, SearchMode
from gateway.domain.principals import Label
from gateway.flow.journal.export import Format, export, file_name
from gateway.flow.live import SessionReplaced
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import ago
from gateway.store.delivery import addresses
from gateway.store.files import attachments
from gateway.store.transcript import conversations, messages, sessions
from gateway.store.transcript.conversations import Conversation, Mark
from gateway.store.transcript.messages import MessageRow
from gateway.store.trust import reviews
from gateway.store.work import tasks
from gateway.web import memory_rows
from gateway.web.auth.access import OWNER, VISITOR
from gateway.web.files import saved_as
from gateway.web.http.bodies import Text
from gateway.web.http.errors import Refused, existing
from gateway.web.live.conversations import SHOWN
from gateway.web.live.topics import Thread
from gateway.web.markup.markdown import Markdown
from gateway.web.pages import Screen
from gateway.web.screens import chat
from gateway.web.site import AtSite, Site, accept_from_owner

PAGE, BEST, EXCERPTS, SIDE = 50, 30, 3, 30
MOST_HITS = 150
NEAR_BEST = 0.6
"""The share of the best hit's words that another one needs."""
SAID = MemoryFilter(kinds=(Kind.TURN,), at_most=Label.UNTRUSTED)


class ConversationQuery(BaseModel):
    """The list's query: chats, `automation`: automated runs, `archive`: archived chats; `q`: those with these words.

    `within`: the words of this one alone.
    """

    model_config = ConfigDict(frozen=True)

    q: Text = Field("", max_length=1_000)
    automation: bool = False
    archive: bool = False
    within: UUID | None = None
    skip: int = Field(0, ge=0, le=1_000_000)


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation in the list, with its matching messages."""

    of: Conversation
    title: Markup
    age: str
    messages: Sequence[memory_rows.MemoryRow]


@dataclass(frozen=True, slots=True)
class Listing:
    """The conversations to show; `more` is where the next page begins."""

    rows: Sequence[ConversationRow]
    more: int | None = None


async def list_conversations(site: Site, query: ConversationQuery) -> Listing:
    """The conversations with the words of the query, the best first; without words the latest."""
    owner, hits = site.owner.id, dict[SessionId, list[MemoryHit]]()
    if words := query.q.strip():
        said = replace(SAID, session=SessionId(query.within) if query.within else None)
        hits = _by_session((await memory_rows.search_all(site, words, said, MOST_HITS, SearchMode.KEYWORD)).hits)
    async with site.database.connection() as conn:
        if words:
            named = [] if query.within else await conversations.called(conn, owner, words, BEST)
            having = await conversations.these(conn, owner, list(hits))
            rows = list(({of.id: of for of in named} | {id: having[id] for id in hits if id in having}).values())[:BEST]
        else:
            kinds = {"unattended": query.automation, "archived": query.archive}
            rows = await conversations.listed(conn, owner, PAGE + 1, query.skip, **kinds)
    return await asyncio.to_thread(_listing, site, rows, hits, query)


def _by_session(hits: Sequence[MemoryHit]) -> dict[SessionId, list[MemoryHit]]:
    """The good hits of each conversation, the best first."""
    grouped: dict[SessionId, list[MemoryHit]] = {}
    least = max((hit.words for hit in hits), default=0.0) * NEAR_BEST
    for hit in hits:
        if hit.words >= least and hit.memory.session_id is not None:
            grouped.setdefault(hit.memory.session_id, []).append(hit)
    return grouped


def _listing(
    site: Site, rows: Sequence[Conversation], hits: Mapping[SessionId, Sequence[MemoryHit]], query: ConversationQuery
) -> Listing:
    now, words = site.clock.now(), frozenset(lexemes(query.q))
    excerpts = None if query.within else EXCERPTS

    def row(of: Conversation) -> ConversationRow:
        messages = [memory_rows.row_of(hit.memory, words) for hit in hits.get(of.id, ())[:excerpts]]
        return ConversationRow(of, memory_rows.marked(of.title, words), ago(now - of.last_at), messages)

    return Listing([row(of) for of in rows[:PAGE]], query.skip + PAGE if len(rows) > PAGE else None)


ENTRIES_BEFORE = 20
"""Entries shown before the requested one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The rendered entries, and the places where the stretches before and after them begin."""

    thread: Markup
    earlier: int | None
    later: int | None


async def read_stretch(site: Site, session: SessionId, first: int | None, around: int | None) -> Reading:
    """The entries from a place on, or around a message; else the newest."""
    async with site.database.connection() as conn:
        row = None if around is None else await messages.get(conn, MessageId(around))
        if row is not None and row.session_id == session and row.seq is not None:
            first = max(1, row.seq - ENTRIES_BEFORE)
        rows = await (conversations.stretch(conn, session, first, SHOWN) if first else messages.shown(conn, session))
        rows = conversations.with_memories(await attachments.with_attachments(conn, rows))
        rows = await conversations.with_thoughts(conn, await conversations.with_versions(conn, rows))
    places = [row.seq for row in rows if row.seq is not None] or [1]
    return Reading(
        await _drawn(site, rows),
        earlier=max(1, places[0] - SHOWN) if places[0] > 1 else None,
        later=places[-1] + 1 if first and len(rows) == SHOWN else None,
    )


HERE = "/c"
LONGEST_TITLE = 200

screen = Screen(HERE, "All chats", "history", 1)

First = Annotated[int | None, Query(alias="from", ge=1, lt=2**31)]
Message = Annotated[int | None, Query(ge=1, lt=2**63)]


async def _find_conversation(site: AtSite, id: UUID) -> Conversation:
    found = await site.database.read(lambda conn: conversations.these(conn, site.owner.id, [SessionId(id)]))
    return existing(found.get(SessionId(id)), f"There is no conversation {id}.")


Found = Annotated[Conversation, Depends(_find_conversation)]


@screen.get(HERE, dependencies=VISITOR)
async def page(request: Request, site: AtSite, query: Annotated[ConversationQuery, Query()]) -> Response:
    """The list, with the rows of its query."""
    found = _rows(site, await list_conversations(site, query), query)
    return site.screen(request, screen, "conversations.html", asked=query, found=found)


@screen.get(f"{HERE}/rows", dependencies=OWNER)
async def rows(site: AtSite, query: Annotated[ConversationQuery, Query()]) -> HTMLResponse:
    """The rows that match while the query is typed."""
    return HTMLResponse(_rows(site, await list_conversations(site, query), query))


@screen.get(f"{HERE}/side", dependencies=OWNER)
async def side(site: AtSite, since: AwareDatetime) -> HTMLResponse:
    """The chats of the sidebar: pinned, those of today, which begins at `since`, and earlier ones."""
    async with site.database.connection() as conn:
        pinned = await conversations.pinned(conn, site.owner.id)
        others = await conversations.listed(conn, site.owner.id, SIDE, archived=False)
    return HTMLResponse(site.pages.piece("side.html", pinned=pinned, others=others, since=since))


@screen.get(f"{HERE}/menu", dependencies=OWNER)
async def menu(site: AtSite, of: chat.Place | None = None) -> HTMLResponse:
    """All that can be done with the conversation of a chat on the page; nothing before it begins."""
    return HTMLResponse(site.pages.piece("chat_menu.html", of=await chat.open_in(site, of)))


@screen.get("/conversations{rest:path}", dependencies=VISITOR)
async def moved(request: Request, rest: str) -> Response:
    """Redirect from where the list and its conversations were."""
    return RedirectResponse(f"{HERE}{rest}?{request.url.query}".rstrip("?"), 308)


@screen.get(f"{HERE}/{{id}}", dependencies=VISITOR)
async def conversation(
    request: Request, site: AtSite, id: chat.Place, at: Message = None, first: First = None
) -> Response:
    """A chat of the page; else one conversation: its end, the stretch around a message, or from a place on."""
    address = chat.address_of(id)
    if address.temporary or await site.database.read(lambda conn: sessions.current(conn, address)) is not None:
        return await chat.show(request, site, id)
    of = await _find_conversation(site, UUID(id))
    if of.place is not None and at is None and first is None:
        return RedirectResponse(f"{HERE}/{of.place}" if of.place else "/", 303)
    reading = await read_stretch(site, of.id, first, at)
    return site.screen(request, screen, "conversation.html", title=of.title, of=of, reading=reading)


@screen.get(f"{HERE}/{{id}}/export", dependencies=OWNER)
async def download(site: AtSite, of: Found, form: Format = "markdown") -> Response:
    """The whole conversation as a file."""
    kind = "text/markdown" if form == "markdown" else "application/json"
    text, _ = site.health.mask.leaks.clean(await asyncio.to_thread(export, of, await _told(site, of), form))
    return Response(text, media_type=kind, headers=saved_as(file_name(of, form)))


@screen.post(f"{HERE}/{{id}}/title", status_code=204, dependencies=OWNER)
async def rename(site: AtSite, of: Found, title: Annotated[Text, Form(max_length=LONGEST_TITLE)] = "") -> None:
    """Rename it; without a name it gets the title by rule again."""
    await site.database.run(lambda tx: conversations.rename(tx, of.id, title))


@screen.get(f"{HERE}/{{id}}/print", dependencies=OWNER)
async def printed(request: Request, site: AtSite, of: Found) -> Response:
    """The whole conversation as a page to print or save."""
    thread = await _drawn(site, await _told(site, of))
    return site.pages.page(request, "print.html", title=of.title, of=of, thread=thread)


@screen.post(f"{HERE}/{{id}}/mark", status_code=204, dependencies=OWNER)
async def mark(site: AtSite, of: Found, mark: Mark | None = None) -> None:
    """Pin or archive it, or neither."""
    await site.database.run(lambda tx: conversations.mark(tx, of.id, mark))


@screen.post(f"{HERE}/{{id}}/delete", dependencies=OWNER)
async def delete(site: AtSite, of: Found) -> Response:
    """Delete it from every list and search; the chats that have it open begin anew."""
    async with site.database.transaction() as tx:
        await addresses.lock_session(tx, of.id)
        await sessions.lock(tx, of.id)
        if await tasks.live_chat(tx, of.id):
            raise Refused(409, "busy", "It is being answered; stop that first, or wait.")
        await reviews.close(tx, of.id)
        await conversations.delete(tx, site.owner.id, of.id)
    site.chat.live.publish(of.id, SessionReplaced(of.id))
    return RedirectResponse(HERE, 303)


@screen.post(f"{HERE}/{{id}}/resume", dependencies=OWNER)
async def resume(site: AtSite, id: UUID) -> Response:
    """Continue it in a chat of its own by the command /resume, which replies there."""
    place = str(uuid4())
    await accept_from_owner(site, chat.address_of(place), f"/resume {id}", str(uuid4()))
    return RedirectResponse(f"{HERE}/{place}", 303)


async def _drawn(site: Site, rows: Sequence[MessageRow]) -> Markup:
    thread = Thread(site.pages, Markdown(), Markup(), site.chat.wordings)
    await thread.draw(rows)
    return Markup(thread.whole()[0].html)


async def _told(site: Site, of: Conversation) -> list[MessageRow]:
    async with site.database.connection() as conn:
        return await attachments.with_attachments(conn, await messages.told_until(conn, of.id))


def _rows(site: Site, listing: Listing, query: ConversationQuery) -> Markup:
    return site.pages.piece("conversation_rows.html", listing=listing, asked=query)
