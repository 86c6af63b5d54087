"""Which embedding model a search asks."""

from datetime import UTC, datetime, timedelta

import pytest

from gateway.agent.memory.search import MemoryQuery, MemorySearch, Visible, recall
from gateway.domain.ids import PrincipalId
from gateway.domain.memory.memories import ALL_MEMORIES, NewMemory, SearchMode, Vector
from gateway.domain.principals import Label, Role
from gateway.memory.lexemes import lexemes
from gateway.store.connection.pool import Connection, Database
from gateway.store.memory import memories, search, vectors
from gateway.store.people import principals
from tests.store.memory.test_search import BEGIN, CHATTER, MODEL, said, vector
from tests.store.memory.test_search import embedded as topics_embedded

NOW = datetime(2026, 4, 1, tzinfo=UTC)
DIMENSIONS = {"test:old": 3, "test:new": 4}


class Model:
    def __init__(self, name: str, asked: list[str]) -> None:
        self.name, self.dimensions, self._asked = name, DIMENSIONS[name], asked

    async def query(self, text: str, /) -> Vector:
        self._asked.append(self.name)
        return (1.0,) * self.dimensions


async def embedded(tx: Connection, name: str) -> None:
    model = await vectors.request_model(tx, name, DIMENSIONS[name])
    rows = await vectors.list_unembedded(tx, 10)
    await vectors.put(tx, model, rows, [[1.0] * model.dimensions for _ in rows])
    await vectors.settle(tx, model)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than a turn waits."""
    monkeypatch.setattr(search, "BLOCK_TIMEOUT_MS", 30_000)


@pytest.fixture
async def owner(database: Database) -> PrincipalId:
    async with database.transaction() as tx:
        who = await principals.add(tx, Role.OWNER, "Ada", [])
        await vectors.ensure_table(tx)
        await memories.add(tx, who, NewMemory("Tea without sugar", label=Label.OWNER))
        await embedded(tx, "test:old")
        return who


async def test_the_model_before_is_asked_until_the_vectors_of_the_new_one_are_made(
    database: Database, owner: PrincipalId
) -> None:
    asked: list[str] = []
    searching = MemorySearch(database, lambda name=None: Model(name or "test:new", asked))
    async with database.transaction() as tx:
        await vectors.request_model(tx, "test:new", DIMENSIONS["test:new"])

    found = await searching.find(owner, "what to drink", mode=SearchMode.SEMANTIC, reach=ALL_MEMORIES)
    assert ([hit.memory.text for hit in found.hits], found.mode) == (["Tea without sugar"], SearchMode.SEMANTIC)

    async with database.transaction() as tx:
        await embedded(tx, "test:new")
    found = await searching.find(owner, "what to drink", mode=SearchMode.SEMANTIC, reach=ALL_MEMORIES)
    assert [hit.memory.text for hit in found.hits] == ["Tea without sugar"]
    assert asked == ["test:old", "test:new"]


async def test_words_alone_are_compared_where_the_model_before_cannot_be_asked(
    database: Database, owner: PrincipalId
) -> None:
    searching = MemorySearch(database, lambda name=None: None if name else Model("test:new", []))
    async with database.transaction() as tx:
        await vectors.request_model(tx, "test:new", DIMENSIONS["test:new"])

    found = await searching.find(owner, "tea", mode=SearchMode.HYBRID, reach=ALL_MEMORIES)
    assert [(hit.memory.text, hit.cosine) for hit in found.hits] == [("Tea without sugar", None)]


async def test_a_turn_is_given_what_means_the_same_in_few_rows_newest_first_and_no_question(
    database: Database, patient: None
) -> None:
    async with database.transaction() as tx:
        who = await principals.add(tx, Role.OWNER, "Ada", [])
        await said(tx, who, *CHATTER)
        for day in (50, 55, 60):
            await said(tx, who, "The mechanic keeps it in his garage until Monday", day=day)
        await said(tx, who, "Where does the mechanic keep his garage?", "Fine.", day=70)
        await said(tx, who, "Now the garage in Porto Street has it, until the summer at least", day=80)
        await topics_embedded(tx)
    question = "Which place is my car at?"
    asked = MemoryQuery(question, lexemes(question), SearchMode.HYBRID, tuple(vector(question)), MODEL)

    async with database.connection() as conn:
        found = await recall(
            conn, who, asked, Visible(frozenset(), frozenset()), at_most=Label.KNOWN, now=NOW, zone="Asia/Tokyo"
        )

    _, *lines = found.text.splitlines()
    assert lines[0].startswith("> Sun 2026-03-22 the user: Now the garage in Porto Street")
    assert lines[1] == "> Mon 2026-03-02 the user: The mechanic keeps it in his garage until Monday (said 3 times)"
    assert len(lines) == len(found.memories) <= 4
    assert "?" not in found.text


async def test_a_time_in_the_question_lifts_what_was_said_then_in_the_persons_zone(database: Database) -> None:
    async with database.transaction() as tx:
        who = await principals.add(tx, Role.OWNER, "Ada", [])
        for day in range(8):  # of January; in Los Angeles it is still the evening before
            await memories.add(
                tx, who, NewMemory(f"Book club, chapter {day}", label=Label.OWNER, created_at=BEGIN + timedelta(day))
            )
    searching, now = MemorySearch(database), BEGIN + timedelta(8)

    async def first(question: str, zone: str | None) -> str:
        found = await searching.find(who, question, reach=ALL_MEMORIES, zone=zone, now=now)
        return found.hits[0].memory.text

    assert await first("Which chapter had the book club last Tuesday?", "UTC") == "Book club, chapter 5"
    assert await first("Which chapter had the book club last Tuesday?", "America/Los_Angeles") == "Book club, chapter 6"
    assert await first("Which chapter had the book club?", None) == "Book club, chapter 7"
