"""Searches of a person's memory, by words and, where a model turns the question into a vector, by meaning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gateway.domain.embedding import Embedder, EmbeddingUnavailable, Vector
from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.memory import Filter, Found, Hit, Kind, Mode, Scope
from gateway.domain.principals import Label
from gateway.memory.lexemes import lexemes
from gateway.store.memory import search, turns
from gateway.store.pool import Connection, Database

WEAK_WORDS, WEAK_COSINE = 0.6, 0.82
"""A best hit below both says little: the share of the question's rare words, and the cosine of the bundled model."""
SURE_WORDS = 0.8
"""What `Scope.AUTO` asks of pinned facts and summaries before it looks no further."""
NO_MODEL = "Only words were compared: no embedding model is there."

NEWEST = 100
"""Messages that a search makes findable before it looks."""


@dataclass(frozen=True, slots=True)
class _Query:
    words: Sequence[str]
    vector: Vector | None
    mode: Mode
    note: str = ""


@dataclass(frozen=True, slots=True)
class MemorySearch:
    """Finds memories in what `database` shows."""

    database: Database
    embedder: Callable[[], Embedder | None] = lambda: None

    async def find(
        self,
        principal: PrincipalId,
        text: str,
        *,
        mode: Mode = Mode.AUTO,
        scope: Scope = Scope.AUTO,
        filter: Filter = Filter(),
        k: int = 8,
        session: SessionId | None = None,
    ) -> Found:
        """The `k` best; untrusted rows beyond `filter.at_most` are counted instead of shown.

        `Scope.AUTO` looks at pinned facts and at this session's summaries first, and at everything unless one of them
        is a sure answer. A question that cannot be embedded is searched by its words, and the note says why.
        """
        query = await self._query(text, mode)
        await self.database.run(lambda tx: turns.index_new(tx, principal, NEWEST))
        async with self.database.connection() as conn:
            asked = _Asked(conn, principal, query, k)
            hits, left_out = await _scoped(asked, scope, filter, session)
        return Found(hits, query.mode, is_weak(hits), left_out, query.note)

    async def _query(self, text: str, mode: Mode) -> _Query:
        words = lexemes(text)
        if mode is Mode.KEYWORD:
            return _Query(words, None, mode)
        if (embedder := self.embedder()) is None:
            return _Query(words, None, Mode.KEYWORD, NO_MODEL)
        try:
            vector = await embedder.query(text)
        except EmbeddingUnavailable as reason:
            return _Query(words, None, Mode.KEYWORD, f"Only words were compared: {reason}")
        return _Query((), vector, mode) if mode is Mode.SEMANTIC else _Query(words, vector, Mode.HYBRID)


@dataclass(frozen=True, slots=True)
class _Asked:
    conn: Connection
    principal: PrincipalId
    query: _Query
    k: int

    async def best(self, filter: Filter) -> tuple[tuple[Hit, ...], int]:
        """The best that may be shown, and how many untrusted ones would stand among them."""
        every = await self._ranked(replace(filter, at_most=Label.UNTRUSTED))
        shown = tuple(hit for hit in every if hit.memory.label <= filter.at_most)
        if len(shown) == len(every):
            return shown, 0
        return tuple(await self._ranked(filter)), len(every) - len(shown)

    async def _ranked(self, filter: Filter) -> Sequence[Hit]:
        if self.query.vector is None:
            return await search.keyword(self.conn, self.principal, self.query.words, filter, self.k)
        return await search.hybrid(self.conn, self.principal, self.query.words, self.query.vector, filter, self.k)


def is_weak(hits: Sequence[Hit]) -> bool:
    """Whether none of them says much about the question; also when there are none."""
    return all(hit.words < WEAK_WORDS and (hit.cosine or 0.0) < WEAK_COSINE for hit in hits)


async def _scoped(
    asked: _Asked, scope: Scope, filter: Filter, session: SessionId | None
) -> tuple[tuple[Hit, ...], int]:
    if scope is Scope.CURRENT and session is not None:
        return await asked.best(replace(filter, session=session))
    if scope is Scope.AUTO:
        near = [await asked.best(narrow) for narrow in _near(filter, session)]
        hits = sorted((hit for found, _ in near for hit in found), key=lambda hit: -hit.score)[: asked.k]
        if any(hit.words >= SURE_WORDS for hit in hits):
            return tuple(hits), sum(left_out for _, left_out in near)
    return await asked.best(filter)


def _near(filter: Filter, session: SessionId | None) -> list[Filter]:
    narrow = [replace(filter, pinned=True)] if filter.pinned is None else []
    if session is not None and (not filter.kinds or Kind.SUMMARY in filter.kinds):
        narrow.append(replace(filter, session=session, kinds=(Kind.SUMMARY,)))
    return narrow
