import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from gateway.background.budgets import FREE_ROWS, estimate_embedding, may_embed
from gateway.background.upkeep.memory_index import (
    GATHER_SECONDS,
    MIN_BATCH,
    FilePassages,
    Indexing,
)
from gateway.config.machine import SystemClock
from gateway.domain.errors import DatabaseDown
from gateway.domain.memory.memories import EmbeddingUnavailable, Vector
from gateway.store.connection.pool import Database
from gateway.store.dump import snapshot
from gateway.store.memory import vectors
from gateway.workspace.files.tree import Workspace
from tests.conftest import Server
from tests.fakes.engine import engine_on
from tests.store.memory.test_indexing import talk
from tests.store.memory.test_memories import add
from tests.store.world import World, found


class FakeClock(SystemClock):
    """Time that a test moves; nobody sleeps."""

    passed = 0.0

    def monotonic(self) -> float:
        return self.passed

    async def sleep(self, _seconds: float) -> None:
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        self.passed += seconds


@dataclass
class FakeEmbedder:
    """A direction by length of the text; it counts what it is asked."""

    name: str = "local:fake"
    dimensions: int | None = 4
    length: int = 4
    asked: list[str] = field(default_factory=list)
    broken: Exception | None = None
    refuses: str = ""

    async def query(self, text: str) -> Vector:
        return (await self.passages([text]))[0]

    async def passages(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        if self.broken is not None:
            raise self.broken
        if self.refuses in texts:
            error = EmbeddingUnavailable("the model refuses this text")
            error.refused = self.refuses
            raise error
        self.asked += texts
        return tuple((math.cos(len(text)), math.sin(len(text)), *[0.0] * (self.length - 2)) for text in texts)


async def no_files() -> None:
    pass


@dataclass
class Job:
    world: World
    embedder: FakeEmbedder | None = field(default_factory=FakeEmbedder)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.fresh()

    def fresh(self) -> None:
        """As after a restart."""
        people = SimpleNamespace(owner=SimpleNamespace(id=self.world.principal))
        engine = engine_on(self.world.database, people=people, clock=self.clock)
        self.work = Indexing(engine, lambda: self.embedder, no_files, partial(may_embed, engine))

    async def look(self) -> datetime | None:
        """Twice, so that what gathers has gathered."""
        await self.work.look()
        self.clock.advance(GATHER_SECONDS)
        return await self.work.look()

    async def vectors(self) -> list[tuple[Any, ...]]:
        async with self.world.database.connection() as conn:
            return [
                tuple(row)
                for row in await conn.fetch(
                    """select m.name, count(*)::int from memory_vectors v join memory_models m on m.id = v.model
                       where m.current group by 1"""
                )
            ]


@pytest.fixture
async def job(database: Database) -> Job:
    return Job(await found(database))


async def test_what_was_said_gets_words_and_vectors_once(job: Job) -> None:
    assert job.embedder is not None
    await talk(job.world, *(f"question {n}" for n in range(MIN_BATCH // 2)))
    assert await job.look() is None
    assert await job.vectors() == [("local:fake", MIN_BATCH)]
    assert await job.world.value("select n from memory_stats") == MIN_BATCH
    assert await job.world.value("select df from memory_df where lexeme = 'quest'") == MIN_BATCH
    assert sorted(job.embedder.asked)[:2] == ["answer to question 0", "answer to question 1"]
    asked = len(job.embedder.asked)
    job.fresh()
    assert await job.look() is None
    assert len(job.embedder.asked) == asked


async def test_a_few_wait_for_others_so_that_no_model_is_loaded_for_each(job: Job) -> None:
    assert job.embedder is not None
    await add(job.world, "first of all")
    await job.look()
    job.embedder.asked.clear()
    await talk(job.world, "hello")
    due = await job.work.look()
    assert due is not None
    assert due > job.clock.now()
    assert job.embedder.asked == []
    job.clock.advance(GATHER_SECONDS)
    assert await job.work.look() is None
    assert sorted(job.embedder.asked) == ["answer to hello", "hello"]


async def test_an_edit_gets_another_vector_and_one_that_comes_in_between_is_not_lost(job: Job) -> None:
    row, _ = await add(job.world, "tea")
    await job.look()
    async with job.world.database.connection() as conn:
        model = await vectors.current(conn)
    assert model is not None
    await job.world.do("update memories set text = 'wine', updated_at = now() where id = $1", row.id)
    async with job.world.database.connection() as conn:
        [lacking] = await vectors.list_unembedded(conn, 10)
    await job.world.do("update memories set text = 'beer', updated_at = now() where id = $1", row.id)
    async with job.world.database.transaction() as tx:
        assert await vectors.put(tx, model, [lacking], [[1.0, 0.0, 0.0, 0.0]]) == 0
        assert [each.text for each in await vectors.list_unembedded(tx, 10)] == ["beer"]


async def test_another_model_is_made_beside_the_first_and_takes_over_when_it_is_whole(job: Job) -> None:
    for n in range(40):
        await add(job.world, f"fact {n}")
    await job.look()
    job.embedder = other = FakeEmbedder("litellm:other", None, 8)
    other.broken = EmbeddingUnavailable("away")
    with capture_logs() as logs:
        for _ in range(3):
            await job.look()
    assert [line["why"] for line in logs if line["event"] == "memory.not_embedded"] == ["away"]
    assert await job.vectors() == [("local:fake", 40)]
    other.broken = None
    async with job.world.database.transaction() as tx:
        model = await vectors.request_model(tx, other.name, 8)
        rows = await vectors.list_unembedded(tx, 16)
        await vectors.put(tx, model, rows, await other.passages([row.text for row in rows]))
        assert not await vectors.settle(tx, model)
        state = await vectors.state(tx)
    assert re.fullmatch(r"pgvector \d\S+, embedding 16 of 40 texts with litellm:other", state)
    job.fresh()
    other.asked.clear()
    assert await job.look() is None
    assert len(other.asked) == 24
    assert await job.vectors() == [("litellm:other", 40)]
    assert await job.world.column("select name from memory_models") == ["litellm:other"]
    async with job.world.database.connection() as conn:
        assert (await vectors.state(conn)).endswith(", 40 memories embedded with litellm:other")


async def test_vectors_of_a_wrong_length_are_refused_and_words_go_on(job: Job) -> None:
    assert job.embedder is not None
    job.embedder.length = 3
    await add(job.world, "tea")
    with capture_logs() as logs:
        assert await job.look() is not None
    assert "gave 3 numbers instead of 4" in next(line["why"] for line in logs if "why" in line)
    assert await job.world.value("select df from memory_df where lexeme = 'tea'") == 1


async def test_a_text_that_the_model_refuses_keeps_out_no_other(job: Job) -> None:
    assert job.embedder is not None
    for word in ("tea", "rain", "wind"):
        await add(job.world, word)
    job.embedder.refuses = "rain"
    with capture_logs() as logs:
        await job.look()
    assert await job.vectors() == [("local:fake", 3)]
    assert [line["why"] for line in logs if line["event"] == "memory.text_refused"] == ["the model refuses this text"]
    assert "" in job.embedder.asked


async def test_a_provider_is_paid_for_much_only_after_a_yes(job: Job) -> None:
    job.embedder = FakeEmbedder("litellm:paid", 4)
    await job.world.do(
        """insert into memories (principal_id, kind, text, label, origin)
           select $1, 'summary', 'text ' || n, 0, '' from generate_series(1, $2) n""",
        *(job.world.principal, FREE_ROWS + 1),
    )
    for _ in range(2):
        assert await job.look() is not None
    assert job.embedder.asked == []
    [preview] = await job.world.column("select preview from reviews where state = 'open'")
    assert re.match(
        rf"{FREE_ROWS + 1:,} pieces of memory, about [\d,]+ tokens \(the price is unknown\), are to", preview
    )
    await job.world.do("update reviews set state = 'done'")
    assert await job.look() is None
    assert len(job.embedder.asked) == FREE_ROWS + 1


def test_an_estimate_has_the_price_of_the_table() -> None:
    told = estimate_embedding("litellm:openai/text-embedding-3-small", 10_400, 4 * 50_000_000)
    assert told == "10,400 pieces of memory, about 50,000,000 tokens ($1.00),"


async def test_a_database_without_the_extension_searches_by_words_until_it_is_there(job: Job, server: Server) -> None:
    assert job.embedder is not None
    name = await job.world.value("select current_database()")
    admin = await asyncpg.connect(server.maintenance_dsn.replace("@/postgres?", f"@/{name}?"))
    await add(job.world, "tea")
    await job.look()
    await admin.execute("drop extension vector cascade; revoke create on database " + name + " from supaclaw")
    await admin.execute(f"alter database {name} owner to postgres")
    job.fresh()
    await add(job.world, "milk")
    async with job.world.database.connection() as conn:
        assert await vectors.extension_problem(conn) == await vectors.state(conn) == vectors.EXTENSION_NOT_CREATED
    with capture_logs() as logs:
        for _ in range(3):
            assert await job.look() is not None
    assert [line["why"] for line in logs if line["event"] == "memory.not_embedded"] == [vectors.EXTENSION_NOT_CREATED]
    assert await job.world.value("select n from memory_stats") == 2
    await admin.execute("create extension vector")
    await admin.close()
    assert await job.look() is None
    assert await job.vectors() == [("local:fake", 2)]


async def test_a_backup_has_no_vectors(job: Job) -> None:
    await add(job.world, "tea")
    await job.look()
    assert await job.vectors() == [("local:fake", 1)]
    async with snapshot(job.world.database) as seen:
        names = {table.name for table in seen.tables}
    assert {"memories", "memory_df", "memory_sources"} <= names
    assert names.isdisjoint({"memory_vectors", "memory_models", "memory_unembedded"})
    extended = """select distinct c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid
                  join pg_depend d on d.classid = 'pg_type'::regclass and d.objid = a.atttypid and d.deptype = 'e'
                  where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r'"""
    assert names.isdisjoint(await job.world.column(extended))


async def test_passages_of_files_come_change_and_go(job: Job, tmp_path: Path) -> None:
    files = FilePassages(job.work.engine, lambda _: Workspace(tmp_path), str)
    chunks = "select path || ' ' || coalesce(page, 0) || ' ' || text from memories where kind = 'chunk' order by 1"
    (tmp_path / "notes").mkdir()
    (tmp_path / "memory").mkdir()
    (tmp_path / "notes" / "tea.md").write_text("green tea")
    (tmp_path / "report.pdf").write_bytes(b"%PDF")
    (tmp_path / "report.pdf.txt").write_text("--- page 1 ---\none\n\n--- page 2 ---\ntwo\n")
    (tmp_path / "broken.txt").write_bytes(b"\x00\xff\x00")
    (tmp_path / "AGENTS.md").write_text("in every prompt")
    (tmp_path / "memory" / "chat.md").write_text("said elsewhere")
    (tmp_path / ".hidden.md").write_text("hidden")
    await files.look()
    assert await job.world.column(chunks) == ["notes/tea.md 0 green tea", "report.pdf 1 one", "report.pdf 2 two"]
    (tmp_path / "notes" / "tea.md").write_text("black tea, no milk")
    (tmp_path / "report.pdf.txt").unlink()
    await files.look()
    assert await job.world.column(chunks) == ["notes/tea.md 0 black tea, no milk"]


async def test_a_search_by_a_member_needs_no_more_rights_than_members_have(job: Job) -> None:
    await add(job.world, "tea")
    await job.look()
    bound = job.world.database.bound(job.world.principal)
    async with bound.connection() as conn:
        assert await conn.fetchval("select count(*) from memory_vectors v join memory_models m on m.id = v.model") == 1
    with pytest.raises((asyncpg.InsufficientPrivilegeError, DatabaseDown)):
        async with bound.connection() as conn:
            await conn.execute("delete from memory_vectors")
