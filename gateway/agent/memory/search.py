"""Searches of a person's memory, by words and, where a model turns the question into a vector, by meaning."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from gateway.domain.embedding import Embedders, EmbeddingUnavailable, Vector, no_embedder
from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.memory import EVERYTHING, Filter, Found, Kind, Mode, Reach, Scope
from gateway.memory.lexemes import lexemes
from gateway.store.connection.pool import Database
from gateway.store.memory import search, turns, vectors
from gateway.store.memory.search import Ranked, WrongDimension

SURE = 0.8
"""The share of the question's words that `Scope.AUTO` asks of what is pinned before it looks no further."""
NO_MODEL = "Only words were compared: no embedding model is there."
KNOWN = Filter()
NEWEST = 100
"""Messages that a search makes findable before it looks."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for; `vector` is made by `model`, and None where only words are compared. `note` says why."""

    words: Sequence[str]
    mode: Mode = Mode.KEYWORD
    vector: Vector | None = None
    model: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class MemorySearch:
    """Finds memories in what `database` shows."""

    database: Database
    embedder: Embedders = no_embedder

    async def find(
        self,
        principal: PrincipalId,
        text: str,
        *,
        mode: Mode = Mode.AUTO,
        scope: Scope = Scope.AUTO,
        filter: Filter = KNOWN,
        k: int = 8,
        session: SessionId | None = None,
        reach: Reach = EVERYTHING,
    ) -> Found:
        """The `k` best; rows trusted less than `filter.at_most` are counted instead of shown.

        `Scope.AUTO` looks at what is pinned and at this session's summaries first, and at everything unless one of
        them is a sure answer. A question that cannot be embedded is searched by its words, and the note says why.
        """
        await self.database.run(lambda tx: turns.index_new(tx, principal, NEWEST))

        async def ranked(query: Query) -> Ranked:
            async with self.database.connection() as conn:

                def best(where: Filter) -> Awaitable[Ranked]:
                    return search.hybrid(conn, principal, query.words, where, k, vector=query.vector, model=query.model)

                parts = [await _ranked(best, scope, each, session) for each in reach.filters(filter)]
            if len(parts) == 1:
                return parts[0]
            hits = sorted((hit for part in parts for hit in part.hits), key=lambda hit: -hit.score)
            return Ranked(tuple(hits[:k]), 0)

        query = await self._query(text, mode)
        try:
            found = await ranked(query)
        except WrongDimension as error:
            query = _by_words(query.words or lexemes(text), str(error))
            found = await ranked(query)
        return Found(found.hits, query.mode, found.weak, found.left_out, query.note)

    async def _query(self, text: str, mode: Mode) -> Query:
        words = lexemes(text)
        if mode is Mode.KEYWORD:
            return Query(words)
        if (embedder := self.embedder()) is None:
            return Query(words, note=NO_MODEL)
        async with self.database.connection() as conn:
            current = await vectors.current(conn)
        if current and current.name != embedder.name:  # whose vectors are still being made
            embedder = self.embedder(current.name) or embedder
        try:
            vector = await embedder.query(text)
        except EmbeddingUnavailable as reason:
            return _by_words(words, str(reason))
        if mode is Mode.SEMANTIC:
            return Query((), mode, vector, embedder.name)
        return Query(words, Mode.HYBRID, vector, embedder.name)


async def _ranked(
    best: Callable[[Filter], Awaitable[Ranked]], scope: Scope, filter: Filter, session: SessionId | None
) -> Ranked:
    if scope is Scope.CURRENT and session is not None:
        return await best(replace(filter, session=session))
    for narrow in _near(filter, session) if scope is Scope.AUTO else ():
        near = await best(narrow)
        if any(hit.words >= SURE for hit in near.hits):
            return near
    return await best(filter)


def _by_words(words: Sequence[str], reason: str) -> Query:
    return Query(words, note=f"Only words were compared: {reason.rstrip('.')}.")


def _near(filter: Filter, session: SessionId | None) -> list[Filter]:
    narrow = [replace(filter, pinned=True)] if filter.pinned is None else []
    if session is not None and (not filter.kinds or Kind.SUMMARY in filter.kinds):
        narrow.append(replace(filter, session=session, kinds=(Kind.SUMMARY,)))
    return narrow
