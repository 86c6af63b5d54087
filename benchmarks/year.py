"""`python -m benchmarks.year`: what a year of 200 questions a day and their answers takes on disk, table by table.

Each question is a task with one model call and one tool call, arrives from a messenger, and its answer is delivered
there. Words follow Zipf's law. Then what is over is cleared away as the gateway does after 90 days.
"""

import argparse
import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter

from benchmarks.memory import LONGEST, World
from gateway.app.storage.database import temporary_database
from gateway.background.upkeep.housekeeping import Retention
from gateway.config.machine import SystemClock
from gateway.config.model import Retention as RetentionSettings
from gateway.domain.principals import Role
from gateway.store.connection.pool import Database
from gateway.store.memory import indexing
from gateway.store.people import principals
from gateway.store.work import retention
from gateway.store.work.retention import TableSize

DAYS, A_DAY, SHOWN = 365, 200, 12
KEPT = timedelta(days=90)

_SAID = """
create temp table said on commit drop as
  select n, $1::uuid as owner, $2::text as chat, md5($2::text)::uuid as session,
         md5($2::text || '-' || n)::uuid as task, $3::timestamptz + n * interval '5 minutes' as t, q, a
  from unnest($4::text[], $5::text[]) with ordinality as g (q, a, n)
"""
_ROWS = """
insert into sessions (id, principal_id, next_seq, started_at) select session, owner, 10000, t from said where n = 1;
insert into addresses (principal_id, channel, account, chat, private, session_id, created_at)
  select owner, 'telegram', '', chat, true, session, t from said where n = 1;
insert into tasks (id, master_id, kind, lane, principal_id, session_id, status, created_at, updated_at)
  select task, task, 'chat', 'chat', owner, session, 'completed', t, t from said;
insert into task_steps (task_id, principal_id, kind, name, cost_usd, tokens_in, tokens_out, latency_ms, created_at)
  select task, owner, k, 'openai/some-model', 0.001, 3000, 200, 900, t from said, unnest('{model,tool}'::text[]) k;
insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, platform_time, received_at,
                   handled_at)
  select owner, p.id, 'telegram', '', chat, n::text, 'message', t, t, t from said join addresses p using (chat);
insert into messages (session_id, principal_id, address_id, seq, kind, text, label, origin, task_id, tokens, closed_at,
                      created_at, platform_id)
  select s.session, owner, p.id, 2 * n + i, (array['user', 'assistant'])[i + 1], (array[q, a])[i + 1], 0, 'telegram',
         case i when 1 then task end, 200, case i when 0 then t end, t, n::text
  from said s join addresses p using (chat), generate_series(0, 1) i;
insert into outbox (principal_id, address_id, message_id, text, state, platform_id, created_at, sent_at)
  select m.principal_id, m.address_id, m.id, m.text, 'sent', m.platform_id, m.created_at, m.created_at from messages m
  where m.session_id = (select session from said limit 1) and m.kind = 'assistant';
"""


async def measure() -> None:
    """Fill a year, and print what it takes before and after what is over is cleared away."""
    world, now = World(), datetime.now(UTC)
    async with temporary_database("year") as database:
        async with database.transaction() as tx:
            owner = await principals.add(tx, Role.OWNER, "Ada", [])
        for day in range(DAYS):
            questions, answers = world.words(A_DAY), _long(world)
            async with database.transaction() as tx:
                await tx.execute(_SAID, owner, str(day), now - timedelta(days=DAYS - day), questions, answers)
                await tx.execute(_ROWS)
        await _index(database)
        print(_report("A year", await _sizes(database)))
        began = perf_counter()
        await Retention(
            database, Path("nowhere"), lambda: RetentionSettings(keep=KEPT, thinking=KEPT), SystemClock()
        ).run()
        print(f"\nCleared in {perf_counter() - began:.0f} s")
        print(_report("After 90 days are kept", await _sizes(database)))


def _long(world: World) -> list[str]:
    """Answers of some eighty words."""
    return [" ".join(parts) for parts in zip(*(world.words(A_DAY) for _ in range(6)), strict=True)]


async def _index(database: Database) -> None:
    """As the job `embed` does, but for the vectors."""
    while await database.run(lambda tx: indexing.index_turns(tx, None, 1_000)):
        pass
    while await database.run(lambda tx: indexing.count_words(tx, 1_000)):
        pass


async def _sizes(database: Database) -> Sequence[TableSize]:
    async with database.connection() as conn:
        await conn.execute("vacuum full analyze", timeout=LONGEST)
        return await retention.largest(conn, datetime.now(UTC).date(), 100)


def _report(title: str, tables: Sequence[TableSize]) -> str:
    total = sum(table.bytes for table in tables) / 2**20
    lines = [f"| {table.name} | {table.bytes / 2**20:.1f} |" for table in tables[:SHOWN]]
    return "\n".join([f"\n{title}: {total:.0f} MB", "", "| table, with its indexes | MB |", "|---|---|", *lines])


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    asyncio.run(measure())


if __name__ == "__main__":
    main()
