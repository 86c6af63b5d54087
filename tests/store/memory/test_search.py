"""Which rows a search finds, in which order, and that a filter neither leaks nor loses any."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import sqrt
from random import Random

import pytest

from gateway.domain.ids import MemoryId, PrincipalId, SessionId
from gateway.domain.memory.memories import DEFAULT_AGENT, Category, Kind, MemoryFilter, NewMemory
from gateway.domain.principals import Label, Role
from gateway.memory.lexemes import lexemes
from gateway.store.connection.pool import Connection, Database
from gateway.store.memory import indexing, memories, search, vectors
from gateway.store.memory.search import WrongDimension
from gateway.store.people import principals
from gateway.store.transcript import imports
from gateway.store.transcript.imports import ImportedRow

MODEL, DIMENSIONS = "test:topics", 32
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ANY = MemoryFilter()
TURNS = MemoryFilter(kinds=(Kind.TURN,))
TOPICS = {"car": ("vehicle", "garage", "mechanic"), "cat": ("kitten", "vet", "whiskers"), "sea": ("beach", "waves")}
"""What an embedder would know to be near each other."""


def direction(name: str) -> list[float]:
    random = Random(name)
    return [random.gauss(0, 1) for _ in range(DIMENSIONS)]


def vector(text: str) -> list[float]:
    """Near to that of a text about the same topic, whatever its words."""
    words = text.lower().split()
    of = [topic for topic, near in TOPICS.items() if any(word.strip(".?!,:") in (topic, *near) for word in words)]
    noise = direction(hashlib.sha256(text.encode()).hexdigest())
    total = [sum(each) for each in zip(*(direction(topic) for topic in of), [0.3 * x for x in noise], strict=True)]
    return [x / sqrt(sum(y * y for y in total)) for x in total]


@pytest.fixture
async def owner(database: Database) -> PrincipalId:
    async with database.transaction() as tx:
        return await principals.add(tx, Role.OWNER, "Ada", [])


async def said(tx: Connection, who: PrincipalId, *texts: str, day: int = 0, label: Label = Label.OWNER) -> SessionId:
    """A conversation of one day, as an import leaves it."""
    at = BEGIN + timedelta(days=day)
    session = await imports.start(tx, who, DEFAULT_AGENT, at)
    rows = [ImportedRow(f"{day}-{n}", "user", text, at + timedelta(minutes=n), label) for n, text in enumerate(texts)]
    await imports.append(tx, session, who, "import:test", rows)
    await indexing.index_turns(tx, None, 1000)
    return session


async def embedded(tx: Connection) -> None:
    await vectors.ensure_table(tx)
    model = await vectors.request_model(tx, MODEL, DIMENSIONS)
    while rows := await vectors.list_unembedded(tx, 500):
        await vectors.put(tx, model, rows, [vector(row.text) for row in rows])


async def found(
    tx: Connection, who: PrincipalId, query: str, which: MemoryFilter = ANY, *, k: int = 5, by_vector: bool = True
) -> list[str]:
    asked = {"vector": vector(query), "model": MODEL} if by_vector else {}
    ranked = await search.hybrid(tx, who, lexemes(query), which, k, **asked)
    return [hit.memory.text for hit in ranked.hits]


CHATTER = [f"Nothing much about number {n}, the weather is fine today and lunch was good" for n in range(40)]


async def test_words_find_what_has_most_of_them(database: Database, owner: PrincipalId) -> None:
    async with database.transaction() as tx:
        await said(tx, owner, *CHATTER, "The plumber Jo Trevelyan fixed the boiler for 180 pounds", "Good.")

        for query in ("Which plumber did the boiler?", "trevelyan", "boilers"):
            assert (await found(tx, owner, query, by_vector=False))[0].startswith("The plumber")


async def test_meaning_finds_what_shares_no_word(database: Database, owner: PrincipalId) -> None:
    async with database.transaction() as tx:
        await said(tx, owner, *CHATTER, "The mechanic keeps it in his garage until Monday morning at least")
        await embedded(tx)

        assert (await found(tx, owner, "Where is my car?"))[0].startswith("The mechanic")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我的猫叫小黑，今年三岁", "猫叫什么名字"),
        ("학교에서 수학 시험을 봤다", "학교 시험"),
        ("ร้านอาหารอยู่ใกล้สถานีรถไฟ", "สถานีรถไฟ"),
        ("موعد الطبيب يوم الخميس", "متى موعد طبيب الاسنان"),
        ("Запись к врачу в четверг", "когда врач"),
        ("バス停は駅前に移動しました", "バス停"),
    ],
)
async def test_words_of_every_script(database: Database, owner: PrincipalId, text: str, query: str) -> None:
    async with database.transaction() as tx:
        await said(tx, owner, *CHATTER, text)

        assert (await found(tx, owner, query, by_vector=False))[0] == text


async def test_what_stands_beside_a_hit_is_lifted(database: Database, owner: PrincipalId) -> None:
    async with database.transaction() as tx:
        answer = "Blue, with the white stripe on both of its sides and the small scratch"
        await said(tx, owner, *CHATTER[:20], "What colour does the Trevelyan boat have?", answer, *CHATTER[20:])

        assert answer in (await found(tx, owner, "colour of the Trevelyan boat", by_vector=False))[:2]


async def test_a_later_turn_that_says_the_same_otherwise_comes_first(database: Database, owner: PrincipalId) -> None:
    async with database.transaction() as tx:
        for day, text in enumerate(CHATTER):
            await said(tx, owner, text, day=day)
        await said(tx, owner, "The vet sees the cat Whiskers on Tuesday at nine in the morning", day=50)
        newer = "The vet moved us: the kitten goes there on Thursday at eleven"
        await said(tx, owner, newer, day=60)
        await embedded(tx)

        assert (await found(tx, owner, "When does the vet see the cat Whiskers?", TURNS))[0] == newer


async def test_what_replaced_a_memory_comes_first_and_so_does_where_it_was_said(
    database: Database, owner: PrincipalId
) -> None:
    async with database.transaction() as tx:
        await said(tx, owner, *CHATTER)
        old = await said(tx, owner, "The mortgage interest is 4.19 percent at Boden and Hart", day=50)
        new = await said(tx, owner, "They got it wrong, 3.89 is what we pay", day=60)
        message = "select id from messages where session_id = $1"
        first, _ = await memories.add(
            tx, owner, NewMemory("Mortgage 4.19 percent", label=Label.OWNER, sources=(await tx.fetchval(message, old),))
        )
        second, _ = await memories.add(
            tx,
            owner,
            NewMemory(
                "Mortgage 3.89 percent",
                label=Label.OWNER,
                sources=(await tx.fetchval(message, new),),
                supersedes=first.id,
            ),
        )

        by_turns = await found(tx, owner, "mortgage interest at Boden and Hart", TURNS, by_vector=False)
        assert by_turns[:2] == [
            "They got it wrong, 3.89 is what we pay",
            "The mortgage interest is 4.19 percent at Boden and Hart",
        ]
        kept = MemoryFilter(kinds=(Kind.MEMORY,))
        assert await found(tx, owner, "mortgage", kept, by_vector=False) == [second.text]
        both = replace(kept, superseded=True)
        assert await found(tx, owner, "mortgage 4.19", both, by_vector=False) == [second.text, first.text]


async def test_a_memory_lifts_the_turn_that_it_was_learned_from(database: Database, owner: PrincipalId) -> None:
    async with database.transaction() as tx:
        source = await said(
            tx, owner, *CHATTER[:20], "Yes, that one, the second from the left, as always", *CHATTER[20:]
        )
        id_ = await tx.fetchval("select id from messages where session_id = $1 and seq = 21", source)
        await memories.add(
            tx, owner, NewMemory("Prefers the window table at Osteria Bellini", label=Label.OWNER, sources=(id_,))
        )

        assert "Yes, that one" in (await found(tx, owner, "window table at Bellini", by_vector=False))[1]


class TestFilters:
    """A filter is exact, and a search by vector returns as many rows as match, however few they are among many."""

    @pytest.fixture
    async def many(self, database: Database, owner: PrincipalId) -> list[MemoryId]:
        async with database.transaction() as tx:
            for n in range(60):
                new = NewMemory(
                    f"Note {n} about the car",
                    category=Category.PERSON if n % 20 == 0 else Category.FACT,
                    tags=("rare", "red") if n % 30 == 7 else ("red",),
                    pinned=n == 33,
                    importance=0.9 if n % 20 == 3 else 0.5,
                    agent="bob" if n == 34 else DEFAULT_AGENT,
                    label=Label.UNTRUSTED if n == 35 else Label.OWNER,
                    created_at=BEGIN + timedelta(days=n),
                )
                await memories.add(tx, owner, new)
            await embedded(tx)
            return [row["id"] for row in await tx.fetch("select id from memories order by created_at")]

    @pytest.mark.parametrize(
        ("which", "expected"),
        [
            (MemoryFilter(categories=(Category.PERSON,)), {0, 20, 40}),
            (MemoryFilter(tags=("rare",)), {7, 37}),
            (MemoryFilter(tags=("rare", "red")), {7, 37}),
            (MemoryFilter(tags=("rare", "blue")), set()),
            (MemoryFilter(pinned=True), {33}),
            (MemoryFilter(min_importance=0.9), {3, 23, 43}),
            (MemoryFilter(min_importance=0.91), set()),
            (MemoryFilter(min_importance=0.9, since=BEGIN + timedelta(days=30)), {43}),
            (MemoryFilter(agent="bob"), {34}),
            (MemoryFilter(since=BEGIN + timedelta(days=3), until=BEGIN + timedelta(days=6)), {3, 4, 5}),
            (MemoryFilter(kinds=(Kind.CHUNK,)), set()),
            (MemoryFilter(since=BEGIN + timedelta(days=55)), {55, 56, 57, 58, 59}),
        ],
    )
    async def test_returns_what_matches_and_nothing_else(
        self, database: Database, owner: PrincipalId, many: list[MemoryId], which: MemoryFilter, expected: set[int]
    ) -> None:
        async with database.transaction() as tx:
            ranked = await search.hybrid(tx, owner, lexemes("kitten"), which, 50, vector=vector("kitten"), model=MODEL)

        assert {many.index(hit.memory.id) for hit in ranked.hits} == expected

    async def test_counts_what_is_trusted_too_little(
        self, database: Database, owner: PrincipalId, many: list[MemoryId]
    ) -> None:
        async with database.transaction() as tx:
            known = await search.hybrid(
                tx, owner, lexemes("note 35"), MemoryFilter(), 5, vector=vector("car"), model=MODEL
            )
            asked_for = MemoryFilter(at_most=Label.UNTRUSTED)
            all_ = await search.hybrid(tx, owner, lexemes("note 35"), asked_for, 5, vector=vector("car"), model=MODEL)

        assert known.left_out == 1
        assert many[35] not in [hit.memory.id for hit in known.hits]
        assert (all_.left_out, all_.hits[0].memory.id) == (0, many[35])

    async def test_a_member_sees_their_own_rows_among_those_of_others(
        self, database: Database, owner: PrincipalId, many: list[MemoryId]
    ) -> None:
        async with database.transaction() as tx:
            member = await principals.add(tx, Role.MEMBER, "Bo", [])
            await said(tx, member, "My own car is green", label=Label.KNOWN)
            await embedded(tx)
        async with database.bound(member).transaction() as tx:
            assert await found(tx, member, "Which car?") == ["My own car is green"]
            assert await found(tx, owner, "Which car?") == []


async def test_a_filter_that_few_rows_pass_loses_none_to_the_index(
    database: Database, owner: PrincipalId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "INDEXED_FROM", 100)
    async with database.transaction() as tx:
        for n in range(600):
            agent = "bob" if n % 100 == 0 else DEFAULT_AGENT
            await memories.add(tx, owner, NewMemory(f"Note {n}", label=Label.OWNER, agent=agent))
        await embedded(tx)
        model = await vectors.requested_model(tx, MODEL, DIMENSIONS)
        assert model is not None
        await vectors.index(tx, model)
        await tx.execute("set local hnsw.max_scan_tuples = 1; set local hnsw.scan_mem_multiplier = 1")
        await tx.execute("set local enable_sort to off; set local enable_seqscan to off")
        bobs = "row('{}', '{}', '{}', null, 'bob', null, null, 2, null, false, null)::memory_filter"
        found = await tx.fetchval(
            f"select memory_nearest($1, $2::smallint, $3, {bobs}, 6, false)", owner, model.id, str(direction("far"))
        )

        assert sorted(found) == [
            row["id"] for row in await tx.fetch("select id from memories where agent = 'bob' order by id")
        ]


async def test_a_search_without_anything_to_go_by_is_empty(database: Database, owner: PrincipalId) -> None:
    async with database.transaction() as tx:
        assert (await search.hybrid(tx, owner, [], MemoryFilter(), 5)).hits == ()
        assert (await search.hybrid(tx, owner, ["car"], MemoryFilter(), 0)).hits == ()
        nothing = await search.hybrid(tx, owner, ["car"], MemoryFilter(), 5, vector=vector("car"), model=MODEL)
        assert (nothing.hits, nothing.weak, nothing.left_out) == ((), True, 0)


async def test_words_find_where_no_vectors_can_be_kept(database: Database, owner: PrincipalId) -> None:
    async with database.transaction() as tx:
        await said(tx, owner, "The plumber fixed the boiler")
        await tx.execute("drop table if exists memory_vectors")

        assert await found(tx, owner, "boiler") == ["The plumber fixed the boiler"]


async def test_a_vector_of_another_dimension_is_refused(database: Database, owner: PrincipalId) -> None:
    async with database.transaction() as tx:
        await said(tx, owner, "The car is blue")
        await embedded(tx)

        with pytest.raises(WrongDimension, match=r"has 3 dimensions, those of test:topics have 32"):
            await search.hybrid(tx, owner, ["car"], MemoryFilter(), 5, vector=[1, 0, 0], model=MODEL)


async def names(tx: Connection, sql: str, *values: object) -> Sequence[str]:
    """The indexes that a statement uses."""
    plan = await tx.fetch(f"explain {sql}", *values)
    return [line[0] for line in plan if "Index" in line[0]]


async def test_conditions_of_a_filter_reach_the_indexes(database: Database, owner: PrincipalId) -> None:
    async with database.transaction() as tx:
        await tx.execute(
            """insert into memories (principal_id, kind, category, text, label, origin, created_at, lexemes)
               select $1, 'memory', 'fact', 'n' || n, 0, 'test', $2::timestamptz + n * interval '1 hour',
                      array_to_tsvector(array['n' || n]) from generate_series(1, 6000) n""",
            owner,
            BEGIN,
        )
        await tx.execute("analyze memories")
        rows = "select * from memories m where m.principal_id = $1 and memory_matches(m, {})"
        empty = "row('{{}}', '{{}}', '{{}}', {}, {}, {}, {}, 1, null, false, null)::memory_filter"
        week = empty.format("null", "null", "'2026-02-01'", "'2026-02-03'")
        bob = empty.format("null", "'bob'", "null", "null")
        await tx.execute("set local plan_cache_mode to force_custom_plan")

        assert "memories_by_time" in "".join(await names(tx, rows.format(week), owner))
        assert "memories_by_agent" in "".join(await names(tx, rows.format(bob), owner))


async def read_so_far(tx: Connection) -> int:
    """Rows and entries of indexes of `memories` that this transaction has read."""
    sql = """select sum(pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid))::bigint
             from (select 'memories'::regclass as oid
                   union all select indexrelid from pg_index where indrelid = 'memories'::regclass) read"""
    return int(await tx.fetchval(sql))


async def test_what_stands_beside_the_hits_is_read_row_by_row(database: Database, owner: PrincipalId) -> None:
    async with database.transaction() as tx:
        for day in range(2):
            await said(tx, owner, *(f"{text} ({number})" for number in range(8) for text in CHATTER), day=day)
        await embedded(tx)
        await tx.execute("analyze memories")
        stored = await tx.fetchval("select count(*) from memories")
        before = await read_so_far(tx)

        assert len(await found(tx, owner, "lunch and weather")) == 5

        assert (await read_so_far(tx)) - before < 20 * stored
