"""Which embedding model a search asks."""

import pytest

from gateway.agent.memory.search import MemorySearch
from gateway.domain.ids import PrincipalId
from gateway.domain.memory.memories import ALL_MEMORIES, NewMemory, SearchMode, Vector
from gateway.domain.principals import Label, Role
from gateway.store.connection.pool import Connection, Database
from gateway.store.memory import memories, vectors
from gateway.store.people import principals

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
