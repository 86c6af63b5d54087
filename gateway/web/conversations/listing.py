"""The list of conversations, and those in which something was said."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field

from gateway.agent.memory.search import MemorySearch
from gateway.domain.ids import SessionId
from gateway.domain.memory import Filter, Hit, Kind, Mode, Scope
from gateway.domain.principals import Label
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import ago
from gateway.store.transcript import conversations
from gateway.store.transcript.conversations import Conversation
from gateway.web.http.fields import Text
from gateway.web.memory import found
from gateway.web.site import Site

PAGE, BEST, EXCERPTS = 50, 30, 3
MOST_HITS = 150
NEAR_BEST = 0.6
"""The share of the best hit's words that another one needs."""
SAID = Filter(kinds=(Kind.TURN,), at_most=Label.UNTRUSTED)


class Asked(BaseModel):
    """What the list shows: chats, or with `automation` what ran by itself; with words, where they were said."""

    model_config = ConfigDict(frozen=True)

    q: Text = Field("", max_length=1_000)
    automation: bool = False
    skip: int = Field(0, ge=0, le=1_000_000)


@dataclass(frozen=True, slots=True)
class Row:
    """A conversation in the list, with messages of it that were found."""

    of: Conversation
    title: Markup
    age: str
    messages: Sequence[found.Row]


@dataclass(frozen=True, slots=True)
class Listing:
    """What there is to show; `more` is where the next page begins."""

    rows: Sequence[Row]
    more: int | None = None


async def look(site: Site, asked: Asked) -> Listing:
    """The conversations last spoken in, or those that have what is looked for, the best first."""
    owner, hits = site.backend.owner.id, dict[SessionId, list[Hit]]()
    if words := asked.q.strip():
        searching = MemorySearch(site.backend.database)
        said = await searching.find(owner, words, mode=Mode.KEYWORD, scope=Scope.ALL, filter=SAID, k=MOST_HITS)
        hits = _by_session(said.hits)
    async with site.backend.database.connection() as conn:
        if words:
            named = await conversations.called(conn, owner, words, BEST)
            having = await conversations.these(conn, owner, list(hits))
            rows = list(({of.id: of for of in named} | {id: having[id] for id in hits if id in having}).values())[:BEST]
        else:
            rows = await conversations.listed(conn, owner, PAGE + 1, asked.skip, unattended=asked.automation)
    return await asyncio.to_thread(_listing, site, rows, hits, asked)


def _by_session(hits: Sequence[Hit]) -> dict[SessionId, list[Hit]]:
    """Those of each conversation, the best first."""
    grouped: dict[SessionId, list[Hit]] = {}
    least = max((hit.words for hit in hits), default=0.0) * NEAR_BEST
    for hit in hits:
        if hit.words >= least and hit.memory.session_id is not None:
            grouped.setdefault(hit.memory.session_id, []).append(hit)
    return grouped


def _listing(
    site: Site, rows: Sequence[Conversation], hits: Mapping[SessionId, Sequence[Hit]], asked: Asked
) -> Listing:
    now, words = site.backend.clock.now(), frozenset(lexemes(asked.q))

    def row(of: Conversation) -> Row:
        messages = [found.row_of(hit.memory, words=words) for hit in hits.get(of.id, ())[:EXCERPTS]]
        return Row(of, found.marked(of.title, words), ago(now - of.last_at), messages)

    return Listing([row(of) for of in rows[:PAGE]], asked.skip + PAGE if len(rows) > PAGE else None)
