"""A stretch of a conversation as the page shows it, whether it goes on or has ended."""

from dataclasses import dataclass

from markupsafe import Markup

from gateway.domain.ids import MessageId, SessionId
from gateway.store.memory import used
from gateway.store.transcript import attachments, branches, conversations, messages
from gateway.web.live.follow import SHOWN
from gateway.web.live.thread import Thread
from gateway.web.render import Markdown
from gateway.web.site import Site

BEFORE = 20
"""Entries shown before the one that is looked for."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The entries, drawn, and the places where the stretches before and after them begin."""

    thread: Markup
    earlier: int | None
    later: int | None


async def read(site: Site, session: SessionId, first: int | None, around: int | None) -> Reading:
    """The entries from a place on, or around a message; else the newest."""
    async with site.backend.database.connection() as conn:
        row = None if around is None else await messages.get(conn, MessageId(around))
        if row is not None and row.session_id == session and row.seq is not None:
            first = max(1, row.seq - BEFORE)
        rows = await (conversations.stretch(conn, session, first, SHOWN) if first else messages.shown(conn, session))
        rows = await branches.joined(conn, used.joined(await attachments.joined(conn, rows)))
    places = [row.seq for row in rows if row.seq is not None] or [1]
    thread = Thread(site.pages, Markdown(), Markup(), site.backend.wordings)
    await thread.draw(rows)
    return Reading(
        Markup(thread.whole()[0].html),
        earlier=max(1, places[0] - SHOWN) if places[0] > 1 else None,
        later=places[-1] + 1 if first and len(rows) == SHOWN else None,
    )
