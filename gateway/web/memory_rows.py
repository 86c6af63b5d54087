"""Rows of memory for the page: the query, the rows that match with the reason, and changes in one transaction."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Annotated, TypeVar

from markupsafe import Markup, escape
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.agent.memory.remember import Remembering, UnknownMemory
from gateway.agent.memory.search import MemorySearch
from gateway.domain.ids import MemoryId
from gateway.domain.memory.memories import (
    ALL_MEMORIES,
    Category,
    Kind,
    Memory,
    MemoryAccess,
    MemoryFilter,
    SearchMode,
    SearchResult,
    SearchScope,
)
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line
from gateway.domain.time import moment
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import kind, outdated, who
from gateway.store.memory import memories, search
from gateway.web.http.bodies import Text
from gateway.web.site import Site

MOST_CHOSEN = 50
Id = Annotated[int, Field(ge=1, lt=2**63)]


class MemoryQuery(BaseModel):
    """A query; empty fields are ignored, `until` is included. `id` names rows instead of a search."""

    model_config = ConfigDict(frozen=True)

    q: Text = Field("", max_length=1_000)
    kind: Kind | None = None
    category: Category | None = None
    tag: Text = Field("", max_length=200)
    since: date | None = None
    until: date | None = None
    agent: Text = Field("", max_length=200)
    pinned: bool | None = None
    untrusted: bool = False
    replaced: bool = False
    skip: int = Field(0, ge=0, le=1_000_000)
    id: tuple[Id, ...] = Field((), max_length=MOST_CHOSEN)

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, fields: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in fields.items() if value != ""}

    @property
    def narrow(self) -> bool:
        """Whether a filter is set."""
        return bool(self.model_dump(exclude={"q", "skip", "id", "untrusted", "replaced"}, exclude_defaults=True))

    def filter(self, zone: str | None) -> MemoryFilter:
        """The filter, whose days are those of the zone; without words to search for, memories only."""
        browsed = () if self.q.strip() else (Kind.MEMORY,)
        return MemoryFilter(
            kinds=(self.kind,) if self.kind else browsed,
            categories=(self.category,) if self.category else (),
            tags=tuple(filter(None, (tag.strip().casefold() for tag in self.tag.split(",")))),
            agent=self.agent or None,
            since=moment(str(self.since), zone) if self.since else None,
            until=moment(str(self.until), zone, end=True) if self.until else None,
            pinned=self.pinned,
            at_most=Label.UNTRUSTED if self.untrusted else Label.KNOWN,
            superseded=self.replaced,
        )


PAGE, BEST = 50, 30
LONGEST, BEFORE = 320, 120
"""Characters of a row's text, and of them before the first word that matched."""
NO_INDEX = "Only words were compared: search by meaning is not ready, and `supaclaw doctor` says why."

_WORD = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff]|[^\W_\u2e80-\u9fff\uf900-\ufaff]+")


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A row of memory; `outdated` says what holds in its place."""

    memory: Memory
    kind: str
    who: str
    text: Markup
    outdated: str = ""


@dataclass(frozen=True, slots=True)
class MemoryListing:
    """The rows to show; `notes` are about the search, `more` is where the next page begins."""

    rows: Sequence[MemoryRow]
    notes: Sequence[str] = ()
    more: int | None = None


async def find_rows(site: Site, query: MemoryQuery) -> MemoryListing:
    """The named rows, else the best for the words, else the newest; what is out of date says so."""
    found, zone = await _found(site, query), site.zone
    async with site.database.connection() as conn:
        newer = await search.replaced(conn, site.owner.id, [row.memory.id for row in found.rows], Label.UNTRUSTED)
    rows = [(row, newer.get(row.memory.id)) for row in found.rows]
    return replace(found, rows=[replace(row, outdated=outdated(now, zone)) if now else row for row, now in rows])


async def _found(site: Site, query: MemoryQuery) -> MemoryListing:
    if query.id:
        return MemoryListing([row_of(memory) for memory in await get_rows(site, query.id)])
    owner, where = site.owner.id, query.filter(site.zone)
    if query.q.strip():
        found = await search_all(site, query.q, where, BEST)
        words = frozenset(lexemes(query.q))
        rows = await asyncio.to_thread(lambda: [row_of(hit.memory, words) for hit in found.hits])
        return MemoryListing(rows, _notes(found))
    newest = await site.database.read(lambda conn: memories.listed(conn, owner, where, PAGE + 1, query.skip))
    more = query.skip + PAGE if len(newest) > PAGE else None
    return MemoryListing([row_of(memory) for memory in newest[:PAGE]], more=more)


async def search_all(
    site: Site, words: str, where: MemoryFilter, most: int, mode: SearchMode = SearchMode.AUTO
) -> SearchResult:
    """Search all that the owner's memory and conversations hold."""
    find = partial(MemorySearch(site.database, site.chat.embedder).find, site.owner.id, scope=SearchScope.ALL)
    return await find(words, mode=mode, filter=where, k=most, askings=True, zone=site.zone, reach=ALL_MEMORIES)


async def get_rows(site: Site, ids: Sequence[int]) -> list[Memory]:
    """The memories with these ids that still exist."""
    found: list[Memory] = []
    async with site.database.connection() as conn:
        own = Remembering(conn, site.owner.id, ALL_MEMORIES, site.clean)
        for id in dict.fromkeys(ids):
            with suppress(UnknownMemory):
                found.append(await own.get(MemoryId(id)))
    return found


def row_of(memory: Memory, words: Set[str] = frozenset()) -> MemoryRow:
    """A memory as a row of the page, with these words marked."""
    return MemoryRow(memory, kind(memory), who(memory), marked(memory.text, words))


def marked(text: str, words: Set[str]) -> Markup:
    """An excerpt in one line around the first of these lexemes, with the matching words marked."""
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


def _notes(found: SearchResult) -> list[str]:
    by_words = found.mode is SearchMode.HYBRID and bool(found.hits) and all(hit.cosine is None for hit in found.hits)
    left_out = f"{found.left_out} unverified left out; tick “include unverified” to see them."
    weak = "Only weak matches were found; they may have nothing to do with your search." * bool(found.hits)
    notes = (found.note or NO_INDEX * by_words, weak * found.weak, left_out * (found.left_out > 0))
    return list(filter(None, notes))


Result = TypeVar("Result")


async def in_memory(
    site: Site, work: Callable[[Remembering], Awaitable[Result]], reach: MemoryAccess = ALL_MEMORIES
) -> Result:
    """Work on what `reach` shows of the owner's memory; raises `MemoryRefused`."""
    return await site.database.run(lambda tx: work(Remembering(tx, site.owner.id, reach, site.clean)))
