"""`python -m benchmarks.long_chat [--years]`: what a turn costs as one chat grows to its five-thousandth.

The gateway is the real one in a process of its own, compaction as configured by default; between the stages the turns
that nobody measures are written into the database, as they and their compactions would have left it. With `--years` the
chat has beside it what `benchmarks.years` writes: 5,000 other conversations.
"""

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.model import MockModel, mock_model
from benchmarks.people import People
from benchmarks.processes import cpu_seconds, pss_mb
from benchmarks.years import lived
from tests.journeys.process import OWNER, GatewayProcess, configured

STAGES = 0, 500, 2_000, 5_000
WARM_UP, TURNS = 10, 100
LEFT = 40
"""Turns that a compaction leaves in the transcript behind its summary; with those measured it stays below the next."""
STATISTICS_AFTER = 11.0
"""Seconds after which an idle backend has told all it knows."""

_PASSED = """
with chat as (
  select s.id, s.principal_id, s.next_seq as first, a.id as address
  from sessions s join addresses a on a.session_id = s.id where a.channel = 'telegram' and a.account <> 'years'
), journal as (
  insert into journals (principal_id, session_id, path, closed_at, filed_at)
  select principal_id, id, 'memory/' || first || '.md', now(), now() from chat returning id
), numbered as (
  select n, md5(first || '-' || n)::uuid as task from chat, generate_series(1, {turns}) n
), task as (
  insert into tasks (id, master_id, kind, lane, principal_id, session_id, status)
  select task, task, 'chat', 'chat', principal_id, chat.id, 'completed' from numbered, chat
), step as (
  insert into task_steps (task_id, principal_id, kind, name, cost_usd, created_at)
  select task, principal_id, 'model', 'openai/mock-model', 0.001, now() - interval '3 days' from numbered, chat
), arrived as (
  insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, platform_time, handled_at)
  select principal_id, address, 'telegram', 'passed', n::text, first || '-' || n, 'message', now(), now()
  from numbered, chat
), said as (
  insert into messages (session_id, principal_id, address_id, seq, kind, text, label, origin, task_id, tokens,
                        closed_at, journal_id)
  select chat.id, principal_id, address, first + 2 * n - 2 + k, case when k = 0 then 'user' else 'assistant' end,
         repeat('A word or two. ', 20 + 65 * k), 0, 'telegram', case when k = 1 then task end, 80 + 260 * k,
         case when k = 0 then now() end, (select id from journal)
  from chat, numbered, generate_series(0, 1) k
  returning id, kind
), sent as (
  insert into outbox (principal_id, address_id, message_id, text, state, sent_at)
  select principal_id, address, said.id, 'as above', 'sent', now() from said, chat where kind = 'assistant'
), summary as (
  insert into messages (session_id, principal_id, seq, kind, text, label, origin, covers, tokens, journal_id)
  select id, principal_id, first + 2 * {turns}, 'summary', repeat('In short. ', 200), 0, 'gateway',
         greatest(first - 1, first + 2 * ({turns} - {left}) - 1), 500, (select id from journal)
  from chat
)
update sessions set next_seq = chat.first + 2 * {turns} + 1 from chat where sessions.id = chat.id
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """A turn of the chat when so many have been; without the model, which answers at once."""

    turn: int
    cpu_ms: float
    sql_ms: float
    rows: float
    """That statements looked at: the one figure that whatever else the machine does cannot change."""
    answer_p50_ms: float
    memory_mb: float


async def measure(home: Path, people: People, model: MockModel, *, years: bool) -> list[Stage]:
    """About two minutes."""
    async with _chatting(home, people, model, years) as gateway:
        stages, done = [], WARM_UP
        for turn in STAGES:
            if turn > done:
                await _pass(gateway, turn - done)
                done = turn
            stages.append(await _stage(gateway, people, turn))
            done += TURNS
        return stages


async def _stage(gateway: GatewayProcess, people: People, turn: int) -> Stage:
    (sql, rows), cpu = await _statistics(gateway), cpu_seconds(gateway.running.pid)
    talk = await people.talk([OWNER], TURNS)
    assert len(talk.turns) == TURNS, "every turn is answered"
    cpu = cpu_seconds(gateway.running.pid) - cpu
    sql_after, rows_after = await _statistics(gateway)
    spent = (sql_after - sql) / TURNS, (rows_after - rows) / TURNS
    return Stage(turn, cpu / TURNS * 1000, *spent, median(talk.turns) * 1000, pss_mb(gateway.running.pid))


async def _pass(gateway: GatewayProcess, turns: int) -> None:
    """So many turns are over, and have been compacted."""
    async with gateway.connected() as connection:
        await connection.execute(_PASSED.format(turns=turns, left=LEFT))
        await connection.execute("vacuum analyze")


async def _statistics(gateway: GatewayProcess) -> tuple[float, float]:
    """Milliseconds that the server has spent on statements so far, and the rows they looked at in our tables."""
    await asyncio.sleep(STATISTICS_AFTER)
    [row] = await gateway.rows(
        """select active_time, (select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables)::float8
           from pg_stat_database where datname = current_database()"""
    )
    return float(row[0]), float(row[1])


@asynccontextmanager
async def _chatting(home: Path, people: People, model: MockModel, years: bool) -> AsyncIterator[GatewayProcess]:
    """The gateway, and a chat of a few turns."""
    gateway = GatewayProcess(home, fresh=True)
    config = configured(people.telegram)
    providers = {"openai": {"api_key": "sk-of-the-owner", "base_url": model.base_url}}
    gateway.configure(config | {"models": {"primary": "openai/mock-model", "providers": providers}})
    try:
        await gateway.start()
        if years:
            await gateway.terminate()
            await lived(gateway)
            await gateway.start()
        await model.take(0)
        await people.talk([OWNER], WARM_UP)
        yield gateway
    finally:
        await gateway.close()


async def run(*, years: bool) -> list[Stage]:
    people = People()
    with tempfile.TemporaryDirectory(prefix="supaclaw-bench-") as home:
        async with people.telegram, mock_model() as model:
            return await measure(Path(home), people, model, years=years)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--years", action="store_true", help="beside 5,000 other conversations")
    options, began = parser.parse_args(), perf_counter()
    print(f"one chat, {TURNS} turns from each of these on: per turn")
    for stage in asyncio.run(run(years=options.years)):
        told = f"{stage.cpu_ms:5.1f} ms CPU of the gateway, {stage.sql_ms:5.1f} ms SQL, {stage.rows:5,.0f} rows"
        print(
            f"  {stage.turn:5,}: {told}, answered after {stage.answer_p50_ms:5.1f} ms (p50), {stage.memory_mb:.0f} MB"
        )
    print(f"measured in {perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
