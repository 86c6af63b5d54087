"""Rows of memory as the page shows them: in one line, with what matched and why, escaped whatever they say."""

import asyncio
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass

from markupsafe import Markup, escape

from gateway.agent.memory.remember import Remembering, UnknownMemory
from gateway.agent.memory.search import MemorySearch
from gateway.domain.ids import MemoryId
from gateway.domain.memory import Found, Hit, Memory, Mode, Scope
from gateway.domain.text.texts import one_line
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import kind, who
from gateway.store.memory import memories
from gateway.web.memory.asked import Asked
from gateway.web.site import Site

PAGE, BEST = 50, 30
LONGEST, BEFORE = 320, 120
"""Characters of a row's text, and of them before the first word that matched."""
NO_INDEX = "Only words were compared: search by meaning is not ready, and `supaclaw doctor` says why."

_WORD = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff]|[^\W_\u2e80-\u9fff\uf900-\ufaff]+")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of memory; `why` says how well it matched."""

    memory: Memory
    kind: str
    who: str
    text: Markup
    why: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What there is to show; `notes` say how it was found, `more` where the next page begins."""

    rows: Sequence[Row]
    notes: Sequence[str] = ()
    more: int | None = None


async def look(site: Site, asked: Asked) -> Answer:
    """The best rows for what is looked for, else the newest, or those that are named."""
    if asked.id:
        return Answer([row_of(memory) for memory in await named(site, asked.id)])
    if asked.q.strip():
        searching = MemorySearch(site.backend.database, site.backend.embedder)
        owner, where = site.backend.owner.id, asked.filter
        found = await searching.find(owner, asked.q, scope=Scope.ALL, filter=where, k=BEST)
        words = frozenset(lexemes(asked.q))
        rows = await asyncio.to_thread(lambda: [row_of(hit.memory, hit, words) for hit in found.hits])
        return Answer(rows, _notes(found))
    async with site.backend.database.connection() as conn:
        newest = await memories.listed(conn, site.backend.owner.id, asked.filter, PAGE + 1, asked.skip)
    more = asked.skip + PAGE if len(newest) > PAGE else None
    return Answer([row_of(memory) for memory in newest[:PAGE]], more=more)


async def named(site: Site, ids: Sequence[int]) -> list[Memory]:
    """Those of these that are still remembered."""
    found: list[Memory] = []
    async with site.backend.database.connection() as conn:
        own = Remembering(conn, site.backend.owner.id)
        for id in dict.fromkeys(ids):
            try:
                found.append(await own.get(MemoryId(id)))
            except UnknownMemory:
                continue
    return found


def row_of(memory: Memory, hit: Hit | None = None, words: Set[str] = frozenset()) -> Row:
    """For the page."""
    return Row(memory, kind(memory), who(memory), marked(memory.text, words), _why(hit) if hit else "")


def marked(text: str, words: Set[str]) -> Markup:
    """An excerpt in one line, around the first of these lexemes, with those words marked that have one."""
    line = one_line(text, 20_000)
    spots = [match.span() for match in _WORD.finditer(line) if not words.isdisjoint(lexemes(match[0]))] if words else []
    at = max(0, spots[0][0] - BEFORE) if spots and spots[0][1] > LONGEST else 0
    end = at + LONGEST
    made = Markup("…" if at else "")
    for start, stop in spots:
        if stop <= end:
            made += escape(line[at:start]) + Markup("<mark>{}</mark>").format(line[start:stop])
            at = stop
    return made + escape(line[at:end]) + ("…" if len(line) > end else "")


def _why(hit: Hit) -> str:
    meaning = "" if hit.cosine is None else f"meaning {hit.cosine:.2f}"
    words = f"{hit.words:.0%} of the words, by weight"
    return " · ".join(filter(None, (f"score {hit.score:.2f}", words, meaning)))


def _notes(found: Found) -> list[str]:
    by_words = found.mode is Mode.HYBRID and bool(found.hits) and all(hit.cosine is None for hit in found.hits)
    left_out = f"{found.left_out} unverified left out; tick “include unverified” to see them."
    weak = "Only weak matches were found; they may have nothing to do with your search."
    notes = (
        found.note or NO_INDEX * by_words,
        weak * (found.weak and bool(found.hits)),
        left_out * (found.left_out > 0),
    )
    return list(filter(None, notes))
