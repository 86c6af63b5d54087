"""Finds memories: for a search, for the start of a session, and a few for each turn."""

from collections.abc import Awaitable, Callable, Collection, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Self

from gateway.domain.ids import MemoryId, MessageId, PrincipalId, SessionId
from gateway.domain.memory.memories import (
    DEFAULT_AGENT,
    Embedders,
    EmbeddingUnavailable,
    Kind,
    Memory,
    MemoryAccess,
    MemoryFilter,
    MemoryHit,
    SearchMode,
    SearchResult,
    SearchScope,
    Vector,
    no_embedder,
)
from gateway.domain.principals import Label, Role
from gateway.domain.time import local_day
from gateway.memory.lexemes import lexemes
from gateway.memory.questions import Days, days_asked, is_asking, is_question
from gateway.memory.wording import Bootstrap, bootstrap, fold_copies, recall_block
from gateway.store.connection.pool import Connection, Database
from gateway.store.memory import indexing, search, vectors
from gateway.store.memory.search import Ranked, WrongDimension

SURE_SHARE = 0.8
"""The share of the question's words with which `SearchScope.AUTO` takes a near memory for a sure answer."""
NO_MODEL = "Only words were compared: no embedding model is there."
TIME_LIFT = 2.0
KNOWN_ONLY = MemoryFilter()


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """A parsed question. `vector`, by `model`, is None if only words are compared; `note` then says why."""

    text: str
    words: Sequence[str]
    mode: SearchMode = SearchMode.KEYWORD
    vector: Vector | None = None
    model: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The open messages and the words of a question; rows that only ask it, or acknowledge, are no answer."""

    messages: Set[MessageId]
    words: Set[str]

    def __contains__(self, memory: Memory) -> bool:
        if memory.role == "assistant":  # a person may answer in a word
            return _is_short(memory) and not any(map(str.isdigit, memory.text))
        is_persons = memory.kind is Kind.TURN and memory.role == "user"
        return memory.message_id in self.messages or (is_persons and is_asking(memory.text, self.words))


@dataclass(frozen=True, slots=True)
class TimesAsked:
    """The times that a question names, in its person's zone."""

    times: Sequence[Days]
    zone: str | None

    @classmethod
    def of(cls, question: str, now: datetime, zone: str | None) -> Self:
        """Those of a question that is asked at `now`."""
        return cls(days_asked(question, local_day(now, zone)), zone)

    def lift(self, memory: Memory) -> float:
        """The amount by which the score of a row of such a time rises."""
        day = local_day(memory.event_at or memory.created_at, self.zone) if self.times else None
        return TIME_LIFT if day is not None and any(day in time for time in self.times) else 0.0


@dataclass(frozen=True, slots=True)
class MemorySearch:
    """Searches the memories in `database`."""

    database: Database
    embedder: Embedders = no_embedder

    async def find(
        self,
        principal: PrincipalId,
        text: str,
        *,
        mode: SearchMode = SearchMode.AUTO,
        scope: SearchScope = SearchScope.AUTO,
        filter: MemoryFilter = KNOWN_ONLY,
        k: int = 8,
        session: SessionId | None = None,
        askings: bool = False,
        zone: str | None = None,
        now: datetime | None = None,
        reach: MemoryAccess,
    ) -> SearchResult:
        """The `k` best memories; those trusted less than `filter.at_most` are counted, not shown.

        `SearchScope.AUTO` searches pinned memories and this session's summaries first, and everything unless one of
        them is a sure answer. If the question can't be embedded, only words are compared, and the note says why.
        A time that the question names, seen from `now` in the zone, lifts rows of that time, unless the filter has one.
        The messages that `session` is answering are left out, and so are earlier askings of the same, unless `askings`.
        """
        await self.database.run(lambda tx: indexing.index_turns(tx, principal, indexing.NEWEST))

        is_timed = filter.since is not None or filter.until is not None
        times = TimesAsked.of("" if is_timed else text, now or datetime.now(UTC), zone)

        async def ranked(query: MemoryQuery) -> Ranked:
            async with self.database.connection() as conn:
                waiting = {} if session is None else await search.open_messages(conn, session)
                asked = Asked(waiting.keys(), frozenset(lexemes("\n".join((text, *waiting.values())))))

                def prior(hit: MemoryHit) -> float | None:
                    return times.lift(hit.memory) if askings or hit.memory not in asked else None

                hybrid = partial(search.hybrid, conn, principal, query.words, k=k, prior=prior)
                best = partial(hybrid, vector=query.vector, model=query.model)
                parts = [await _ranked(best, scope, each, session) for each in reach.filters(filter)]
            if len(parts) == 1:
                return parts[0]
            hits = sorted((hit for part in parts for hit in part.hits), key=lambda hit: -hit.score)
            return Ranked(tuple(hits[:k]), 0, all(part.weak for part in parts))

        query = await self.parse(text, mode)
        try:
            found = await ranked(query)
        except WrongDimension as error:
            query = _by_words(text, str(error))
            found = await ranked(query)
        async with self.database.connection() as conn:
            ids = [hit.memory.id for hit in found.hits]
            newer = await search.replaced(conn, principal, ids, filter.at_most if reach.everything else Label.UNTRUSTED)
        shown = {id: now for id, now in newer.items() if reach.shows(now)}
        return SearchResult(found.hits, query.mode, found.weak, found.left_out, query.note, shown)

    async def parse(self, text: str, mode: SearchMode = SearchMode.AUTO) -> MemoryQuery:
        """The words of a question, and its vector if an embedding model gives one in time."""
        words = lexemes(text)
        if mode is SearchMode.KEYWORD:
            return MemoryQuery(text, words)
        if (embedder := self.embedder()) is None:
            return MemoryQuery(text, words, note=NO_MODEL)
        current = await self.database.read(vectors.current)
        if current and current.name != embedder.name:  # its vectors are still being computed
            embedder = self.embedder(current.name) or embedder
        try:
            vector = await embedder.query(text)
        except EmbeddingUnavailable as reason:
            return _by_words(text, str(reason))
        if mode is SearchMode.SEMANTIC:
            return MemoryQuery(text, (), mode, vector, embedder.name)
        return MemoryQuery(text, words, SearchMode.HYBRID, vector, embedder.name)


async def _ranked(
    best: Callable[[MemoryFilter], Awaitable[Ranked]],
    scope: SearchScope,
    filter: MemoryFilter,
    session: SessionId | None,
) -> Ranked:
    if scope is SearchScope.CURRENT and session is not None:
        return await best(replace(filter, session=session))
    for narrow in _near(filter, session) if scope is SearchScope.AUTO else ():
        near = await best(narrow)
        if any(hit.words >= SURE_SHARE for hit in near.hits):
            return near
    return await best(filter)


def _by_words(text: str, reason: str) -> MemoryQuery:
    return MemoryQuery(text, lexemes(text), note=f"Only words were compared: {reason.rstrip('.')}.")


def _near(filter: MemoryFilter, session: SessionId | None) -> list[MemoryFilter]:
    narrow = [replace(filter, pinned=True)] if filter.pinned is None else []
    if session is not None and (not filter.kinds or Kind.SUMMARY in filter.kinds):
        narrow.append(replace(filter, session=session, kinds=(Kind.SUMMARY,)))
    return narrow


HALF_LIFE = timedelta(days=30)
CORE = "core"
"""The tag of memories that never age."""
ALWAYS = (CORE, "preference")


async def bootstrap_context(
    conn: Connection,
    principal: PrincipalId,
    as_of: datetime,
    *,
    session: SessionId | None = None,
    max_tokens: int = 2_000,
    include_last_session: bool = True,
    top_memories: int = 10,
    always_include_tags: Collection[str] = ALWAYS,
    recency_bias: float = 0.3,
    at_most: Label = Label.KNOWN,
    reach: MemoryAccess,
    zone: str | None = None,
) -> Bootstrap:
    """The memories with which a session starts: those of `as_of`, without the ones forgotten or replaced since.

    The same `as_of` gives the same text, so the beginning of a session's prompts outlives restarts. A token counts as
    four characters. `always_include_tags` are tags or categories. Memories trusted less than `at_most` are left out.
    `session` is the session that starts. What is out of date says so, with days in the zone.
    """
    last, found = None, list[Memory]()
    for part in reach.filters(MemoryFilter(agent=DEFAULT_AGENT, at_most=at_most)):
        whose, trusted = part.agent or DEFAULT_AGENT, part.at_most
        if include_last_session and last is None:
            last = await search.last_chat(conn, principal, session, as_of, trusted, whose)
        found += await search.bootstrap_candidates(conn, principal, as_of, always_include_tags, trusted, whose)
    ranked = sorted(found, key=lambda memory: (-_weight(memory, as_of, recency_bias), -memory.id))
    chosen = _chosen(ranked, top_memories, frozenset(always_include_tags))
    if last is not None:
        newer = await search.replaced(conn, principal, last.rows, at_most)
        last = last.marked({id: now for id, now in newer.items() if reach.shows(now)}, zone)
    return bootstrap(last, chosen, as_of, max_tokens)


def _chosen(ranked: Sequence[Memory], top: int, always: frozenset[str]) -> list[Memory]:
    return [one for place, one in enumerate(ranked) if place < top or one.pinned or {*one.tags, one.category} & always]


def _weight(memory: Memory, now: datetime, bias: float) -> float:
    """importance · (1 - bias) + recency · bias; pinned, core and future memories don't age."""
    at = memory.event_at or memory.created_at
    ageless = memory.pinned or CORE in memory.tags or at > now
    recency = 1.0 if ageless else 0.5 ** ((now - at) / HALF_LIFE)
    return memory.importance * (1 - bias) + recency * bias


RECALLED_ROWS, RECALLED_TOKENS = 4, 600
CANDIDATES = 30
"""Memories that are searched, since the prompt shows some already, and several may say the same."""
LEAST_WORDS, LEAST_SCORE = 0.4, 4.5
"""A recalled memory has this share of the question's rare words, or scores as much."""
QUESTION_CHARACTERS = 1_000
"""Characters at the end of the newest messages that count as the question."""
_QUESTION, _FEW_WORDS, _OF_AGENT = -1.0, -2.0, -1.0
"""Added to what seldom holds an answer: a question, small talk, the agent's own words."""


def recall_limit(role: Role, label: Label) -> Label:
    """The lowest trust of memories that are recalled in a conversation with this label.

    The owner gets no untrusted ones, which would taint the conversation permanently. A group's are all untrusted.
    """
    return Label.KNOWN if role is Role.OWNER else max(Label.KNOWN, label)


@dataclass(frozen=True, slots=True)
class Visible:
    """Messages and memories that are not recalled, mostly because the prompt shows them already."""

    messages: Set[MessageId]
    memories: Set[MemoryId]

    def __contains__(self, memory: Memory) -> bool:
        return memory.message_id in self.messages or memory.id in self.memories


@dataclass(frozen=True, slots=True)
class Recalled:
    """Recalled memories and their text for the prompt."""

    text: str
    label: Label
    memories: tuple[MemoryId, ...] = ()


async def recall(
    conn: Connection,
    principal: PrincipalId,
    question: MemoryQuery,
    visible: Visible,
    *,
    at_most: Label,
    now: datetime,
    zone: str | None = None,
) -> Recalled:
    """The memories that fit a question asked at `now`, the newest first, with days in the zone.

    They are found by words alone if the question has no vector or the search is too slow. Only memories trusted as much
    as the conversation, so a recall never taints it.
    """
    words = question.words
    if not words:
        return Recalled("", Label.OWNER)
    found, asked = None, Asked(visible.messages, frozenset(words))
    if question.vector is not None:
        times = TimesAsked.of(question.text, now, zone)

        def prior(hit: MemoryHit) -> float | None:
            memory = hit.memory
            return None if memory in visible or memory in asked else times.lift(memory) + _recall_prior(memory)

        find = partial(search.hybrid, conn, principal, words, MemoryFilter(at_most=at_most), CANDIDATES, prior=prior)
        found = await search.in_time(
            conn, search.BLOCK_TIMEOUT_MS, lambda: find(vector=question.vector, model=question.model)
        )
    if found is not None and (not found.hits or any(hit.cosine is not None for hit in found.hits)):
        fitting = [hit.memory for hit in found.hits if hit.score >= LEAST_SCORE or hit.words >= LEAST_WORDS]
    else:
        by_words = await search.recall(conn, principal, words, at_most, CANDIDATES, LEAST_WORDS)
        said = (memory for memory in by_words if memory not in visible and memory not in asked)
        fitting = [memory for memory in said if not is_question(memory.text)]
    told = sorted(fold_copies(fitting, RECALLED_ROWS), key=lambda copies: copies.newest.created_at, reverse=True)
    newer = await search.replaced(conn, principal, [copies.newest.id for copies in told], at_most)
    text = recall_block(told, RECALLED_TOKENS, zone, newer)
    shown = [copies.newest for copies in told[: text.count("\n")]]  # one line for each, below the mark
    return Recalled(text, max((each.label for each in shown), default=Label.OWNER), tuple(each.id for each in shown))


def _recall_prior(memory: Memory) -> float:
    prior = _QUESTION if is_question(memory.text) else 0.0
    if memory.kind is Kind.TURN:
        prior += _OF_AGENT if memory.role == "assistant" else _FEW_WORDS if _is_short(memory) else 0.0
    return prior


def _is_short(memory: Memory) -> bool:
    return memory.kind is Kind.TURN and len(memory.text.split()) < 3 and len(lexemes(memory.text)) < 4
