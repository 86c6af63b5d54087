import io
from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.store.connection.pool import Connection, Database
from gateway.store.dump import NOT_DUMPED, DatabaseSnapshot, Table, snapshot
from tests.conftest import Server
from tests.store.world import World, found

NASTY = "tab\t newline\n return\r backslash\\ \\N \\. \\t quote' \" {,} \x01 🦞 e\u0301 \u200d ﷽ " + "x" * 9000

ROWS = {
    "sessions": """update sessions set label = 2, digest = $1, ended_at = '-infinity', parent_id = id,
                     parent_seq = 2147483647 where $2::uuid is not null""",
    "tasks": """insert into tasks (id, master_id, parent_id, kind, lane, principal_id, input, output, error, seq, token)
                overriding system value
                select $2, $2, $2, 'agent', $1, id, jsonb_build_object('a', $1::text, 'n', 1e400::numeric, 'x', null),
                  'null', $1, 9223372036854775806, 9223372036854775807 from principals""",
    "messages": """insert into messages (session_id, principal_id, seq, kind, text, label, origin, sent_at, answered_by,
                     entry_id, model)
                   select s.id, principal_id, 1, 'notice', $1, -32768, '', '2026-02-28 23:59:59.123456+05:45',
                     null, $2, $1 from sessions s""",
    "inbox": """insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, text,
                  platform_time, entry_id)
                select principal_id, id, channel, account, $1, '', 'edit', $1, 'infinity', $2 from addresses""",
    "outbox": """insert into outbox (principal_id, address_id, message_id, text, state, error)
                 select principal_id, (select id from addresses), id, $1, 'sent', $2::uuid::text from messages""",
    "todo_lists": """insert into todo_lists (task_id, principal_id, title, steps, trivial, label, ordinal, created_at)
                select id, principal_id, $1, jsonb_build_array($1::text, $2::uuid), $1, -32768, -2147483648, '-infinity'
                from tasks""",
    "task_steps": """insert into task_steps (task_id, principal_id, kind, name, cost_usd, failed)
                     select t.id, t.principal_id, 'model', $1, v, jsonb_build_array($1::text, $2::uuid)
                     from tasks t, unnest('{0.1,1e-300,NaN,-Infinity}'::float8[]) v""",
    "files": """insert into files (principal_id, path, mime, size, sha256, description, id)
                select id, $1, '', 9223372036854775807, '', $1, $2 from principals""",
    "api_tokens": """insert into api_tokens (id, principal_id, name, sha256, scopes)
                     select $2, id, $1, '', array['', 'NULL', '{', '"', null, $1] from principals""",
    "journals": """insert into journals (principal_id, session_id, path, summary)
                   select principal_id, id, $2::uuid::text, $1 from sessions""",
    "memories": """insert into memories (principal_id, session_id, text, label, origin, category, tags, lexemes,
                     content_hash)
                   select principal_id, id, $1, 2, $2::uuid::text, 'fact', array['NULL', $1],
                     array_to_tsvector(array[left($1, 300), 'it''s']), '\\x00ff' from sessions""",
    "memory_sources": """insert into memory_sources (memory_id, message_id, principal_id)
                         select m.id, s.id, m.principal_id from memories m, messages s where $1 <> $2::uuid::text""",
    "memory_progress": """insert into memory_progress (session_id, principal_id, seq, place)
                          select id, principal_id, 2147483647, 0 from sessions where $1 <> $2::uuid::text""",
    "memory_files": """insert into memory_files (principal_id, path, version)
                       select id, $1 || $2::uuid::text, $1 from principals""",
    "memory_df": """insert into memory_df (principal_id, lexeme, df)
                    select id, left($1, 300) || $2::uuid::text, 2147483647 from principals""",
    "memory_stats": """insert into memory_stats (principal_id, n)
                       select id, 9223372036854775807 from principals where $1 <> $2::uuid::text""",
    "memory_gone": """insert into memory_gone (principal_id, lexemes)
                      select id, array_to_tsvector(array[left($1, 300), $2::uuid::text]) from principals""",
    "attachments": """insert into attachments (id, principal_id, session_id, message_id, place, channel, ref, name,
                                                mime, error)
                      select $2, principal_id, session_id, id, 0, '', $1, $1, '', $1 from messages""",
    "pairings": """insert into pairings (principal_id, channel, account, chat, thread, sender, name, code)
                   select id, $1, '', '', '', '', $1, $2::uuid::text from principals""",
    "links": """insert into links (code, principal_id, address_id)
                select $1 || $2::uuid::text, principal_id, id from addresses""",
    "usage": """insert into usage (day, principal_id, kind, model, calls, tokens_in, tokens_out, tokens_cached,
                                   cost_usd)
        select '2026-01-01', id, $1, $1 || $2::uuid::text, 1, 2, 3, 4, 0.1 from principals limit 1""",
    "table_sizes": "insert into table_sizes values ('2026-01-01', $1 || $2::uuid::text, 1)",
    "guesses": "insert into guesses (who) values ($1 || $2::uuid::text)",
    "schedules": """insert into schedules (principal_id, name, prompt, cron, origin, asked_by, address_id, next_run_at)
                    select id, $1, $1, $1, $1, $2::uuid::text, (select id from addresses), '-infinity'
                    from principals""",
    "schedule_runs": """insert into schedule_runs (schedule_id, slot, principal_id, missed, missed_since, error)
                        select id, '2026-03-29 02:30:00.000001+02', principal_id, 2147483647, 'infinity',
                          $1 || $2::uuid::text
                        from schedules""",
    "triggers": """insert into triggers (principal_id, source, account, idempotency_key, digest, task_id)
                   select principal_id, $1, $1, $2::uuid::text, '', id from tasks""",
    "contents": """insert into contents (principal_id, sha256, label, source)
                   select id, $1 || $2::uuid::text, 2, $1 from principals""",
    "reviews": """insert into reviews (kind, principal_id, asked_id, session_id, address_id, tool, arguments, digest,
                    preview, label, expires_at)
                  select 'approval', id, id, (select id from sessions), (select id from addresses), $1,
                    jsonb_build_object('a', $1::text), $2::uuid::text, $1, 2, 'infinity' from principals""",
    "grants": """insert into grants (principal_id, given_by, tool, act, arguments, base, bounded, at_most, times_left,
                   sum_left, expires_at)
                 select id, id, $1, 'run', jsonb_build_object('a', $1::text), $2::uuid::text, $1, 0.1, 2147483647,
                   1e300, 'infinity' from principals""",
    "audit": """insert into audit
                select 1, 'infinity', $1, $2, $1, '\\x00ff', '', '', '\\x5c' from principals limit 1""",
    "imports": """insert into imports (principal_id, agent, key, source, place)
                  select id, $1, decode('005c', 'hex'), $2::uuid::text, $1 from principals""",
    "channel_facts": "insert into channel_facts (channel, name, value) values ($1, $2::uuid::text, $1)",
    "synced_files": """insert into synced_files (principal_id, place, path, sha256, size, version)
                       select id, $1, $1, $2::uuid::text, 9223372036854775807, 9223372036854775807 from principals""",
    "running_commands": "insert into running_commands select id, $2 from principals where $1::text is not null",
    "provider_fields": """insert into provider_fields
                          select id, principal_id, 2, $2::uuid::text, $1, array['NULL', $1] from messages limit 1""",
    "thoughts": """insert into thoughts (message_id, principal_id, label, text, tokens, ms)
                   select id, principal_id, 2, $1 || $2::uuid::text, 0, 0 from messages limit 1""",
    "model_refusals": "insert into model_refusals values ($1, $2::uuid::text, $1, 'infinity')",
    "swept_objects": "insert into swept_objects values ($1, $2::uuid::text, 'infinity')",
    "pins": """insert into pins (kind, name, state, sha256, content, source)
               values ($1, $2::uuid::text, 'staged', '', '\\x00ff5c', $1)""",
    "secrets": """insert into secrets
                    (principal_id, shared, name, version, key_id, wrapped, sealed, hosts, tools, place)
                  select id, true, $1, 2147483647, $2::uuid::text, '\\x00ff', '\\x5c4e', array['NULL', $1], '{}', $1
                  from principals""",
    "meta": "insert into meta (key, value) values ($2::uuid::text, jsonb_build_array($1::text, '\"\\u0041'::text))",
}
"""One row, or more, of values that a careless copy would change."""


@pytest.fixture
async def filled(database: Database) -> World:
    """A database with something nasty in each table."""
    world = await found(database)
    async with database.transaction() as conn:
        for statement in ROWS.values():
            await conn.execute(statement, NASTY, uuid4())
        await conn.execute("update messages set answered_by = id")
    return world


async def dumped(database: Database) -> tuple[DatabaseSnapshot, dict[Table, bytes]]:
    async with snapshot(database) as seen:
        return seen, {table: await copied(seen, table) for table in seen.tables}


async def copied(seen: DatabaseSnapshot, table: Table) -> bytes:
    target = io.BytesIO()
    rows = await seen.copy(table, target)
    assert target.getvalue().count(b"\n") == rows
    return target.getvalue()


async def columns_of(conn: Connection, name: str) -> tuple[str, ...]:
    rows = await conn.fetch(
        """select column_name from information_schema.columns where table_schema = 'supaclaw' and table_name = $1
           order by ordinal_position""",
        name,
    )
    return tuple(row["column_name"] for row in rows)


@pytest.mark.parametrize("way", ["", "&pool_mode=transaction"])
async def test_every_table_with_all_its_columns_is_there(filled: World, dsn: str, way: str) -> None:
    async with await Database.connect(dsn + way) as database:
        seen, tables = await dumped(database)

    everything = await filled.column("select tablename from pg_tables where schemaname = 'supaclaw'")
    assert {table.name for table in tables} == set(everything) - set(NOT_DUMPED) - {
        "memory_unembedded",
        "memory_models",
    }
    assert [table.name for table, rows in tables.items() if not rows] == []
    async with filled.database.connection() as conn:
        for table in seen.tables:
            assert table.columns == await columns_of(conn, table.name)
    assert seen.schema == await filled.value("select max(number) from migrations")


async def test_a_table_comes_after_those_it_refers_to(filled: World) -> None:
    seen, _ = await dumped(filled.database)

    order = {table.name: place for place, table in enumerate(seen.tables)}
    assert order["principals"] < order["sessions"] < order["addresses"] < order["messages"] < order["outbox"]
    assert order["tasks"] < order["task_steps"]


async def test_it_shows_one_instant_and_stops_nobody(filled: World) -> None:
    async with snapshot(filled.database) as seen:
        await filled.ask("too late for this one")
        [messages] = [table for table in seen.tables if table.name == "messages"]
        assert b"too late" not in await copied(seen, messages)
    _, after = await dumped(filled.database)

    assert b"too late" in after[messages]


async def test_what_postgres_computes_itself_is_left_out(database: Database) -> None:
    async with database.connection() as conn:
        await conn.execute("create table sample (a int, twice int generated always as (a * 2) stored, b int)")
        await conn.execute("alter table sample drop column b")
    seen, _ = await dumped(database)

    assert Table("sample", ("a",)) in seen.tables


async def test_a_database_that_is_not_ours_is_refused(empty_dsn: str) -> None:
    async with await Database.connect(empty_dsn) as database:
        with pytest.raises(OwnerMustAct, match="holds nothing of SupaClaw"):
            await dumped(database)


@pytest.fixture
async def reader(server: Server, dsn: str) -> AsyncIterator[str]:
    """The address for a role that may select from every table, but owns none: it would see no row."""
    name = f"reader_{uuid4().hex}"
    await server.maintain(f"create role {name} login password 'reader'")
    database = dsn.split("@/")[1].split("?")[0]
    await server.maintain(f"grant connect on database {database} to {name}")
    owner = await asyncpg.connect(dsn)
    await owner.execute(f"grant usage on schema supaclaw to {name}")
    await owner.execute(f"grant select on all tables in schema supaclaw to {name}")
    yield f"postgresql://{name}:reader@/{dsn.split('@/')[1]}"
    await owner.execute(f"revoke all on all tables in schema supaclaw from {name}")
    await owner.execute(f"revoke all on schema supaclaw from {name}")
    await owner.close()
    await server.maintain(f"revoke connect on database {database} from {name}", f"drop role {name}")


async def test_rows_that_cannot_be_seen_are_an_error_and_not_an_empty_dump(filled: World, reader: str) -> None:
    async with await Database.connect(reader) as database:
        with pytest.raises(OwnerMustAct, match="may not read everything"):
            await dumped(database)
