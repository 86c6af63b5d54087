"""`python -m benchmarks.years`: what a start costs after years: 100,000 messages in 5,000 conversations, each with its
journal file, and whatever else stays for ever. The gateway is the real one, in a process of its own.
"""

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from time import perf_counter

from asyncpg import Record

from benchmarks.people import People
from benchmarks.processes import cpu_seconds, postgres_pids, pss_mb
from gateway.domain.conversation.inbound import Address, Arrival, Inbound, Sender
from gateway.domain.ids import EntryId
from gateway.workspace.journal.entries import JournalEntry, entry_of, render_entries
from gateway.workspace.journal.writer import journal_key
from tests.journeys.process import GatewayProcess, configured

CONVERSATIONS, ROUNDS = 5_000, 10
"""A round is a question and its answer."""
STARTS = 5
AFTER = 20.0
LOG_MB, LOG_FILES = 4, 50

_YEARS = """
create temp table past on commit drop as
  select n, md5('session ' || n)::uuid as session, p.id as owner,
         now() - interval '3 years' + n * interval '5 hours' as t
  from generate_series(1, {conversations}) n, principals p where p.role = 'owner';
create temp table said on commit drop as
  select n, k, session, owner, md5('turn ' || n || '-' || k)::uuid as task,
         md5('said ' || n || '-' || k)::uuid as entry,
         t + k * interval '1 minute' as t
  from past, generate_series(1, {rounds}) k;
insert into sessions (id, principal_id, next_seq, started_at) select session, owner, 2 * {rounds} + 1, t from past;
insert into addresses (principal_id, channel, account, chat, private, session_id, created_at)
  select owner, 'telegram', 'years', n::text, true, session, t from past;
insert into journals (principal_id, session_id, path, opened_at)
  select owner, session, to_char(t at time zone 'UTC', '"sessions/"YYYY-MM-DD/HH24-MI-SS".md"'), t from past;
insert into tasks (id, master_id, kind, lane, principal_id, session_id, status, created_at, updated_at)
  select task, task, 'chat', 'chat', owner, session, 'completed', t, t from said;
insert into task_steps (task_id, principal_id, kind, name, cost_usd, created_at)
  select task, owner, 'model', 'openai/mock-model', 0.001, t from said;
insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, platform_time, received_at,
                   handled_at, entry_id)
  select owner, a.id, 'telegram', 'years', n::text, n || '-' || k, 'message', t, t, t, entry
  from said join addresses a on a.session_id = session;
insert into messages (session_id, principal_id, address_id, seq, kind, text, label, origin, sender, task_id, tokens,
                      closed_at, created_at, journal_id, entry_id, platform_id)
  select session, owner, a.id, 2 * k - 1 + answer, case answer when 0 then 'user' else 'assistant' end,
         repeat('A word or two. ', 20 + 20 * answer), 0, 'telegram', case answer when 0 then 'Ada' else '' end,
         case answer when 1 then task end, 200, case answer when 0 then t end, t + answer * interval '1 second', j.id,
         case answer when 0 then entry else gen_random_uuid() end, case answer when 0 then n || '-' || k end
  from (select * from said order by n, k) said join addresses a on a.session_id = session
       join journals j on j.session_id = session, generate_series(0, 1) answer;
insert into outbox (principal_id, address_id, message_id, part, text, state, sent_at, created_at)
  select principal_id, address_id, id, part, 'as above', 'sent', created_at, created_at
  from messages, generate_series(0, 1) part where kind = 'assistant';
insert into contents (principal_id, sha256, label, source)
  select owner, encode(sha256(entry::text::bytea), 'hex'), 0, 'agent' from said order by n limit 20000;
insert into files (principal_id, path, mime, size, sha256, derived_at)
  select owner, 'uploads/' || n, 'text/plain', 1, md5(n::text), now() from past limit 1000;
insert into attachments (principal_id, session_id, message_id, place, channel, ref, name, mime, state, file_id)
  select f.principal_id, m.session_id, m.id, 0, 'telegram', 'ref', f.path, 'text/plain', 'stored', f.id
  from files f join messages m on m.platform_id = split_part(f.path, '/', 2) || '-1' where f.path ~ '^uploads/[0-9]+$';
insert into schedules (principal_id, name, prompt, cron, origin, next_run_at, paused_at)
  select owner, 'schedule ' || n, 'Look at it.', '0 9 * * *', 'telegram', now() + interval '1 day', null from past;
"""

_LINES = """
select j.path, m.kind, m.entry_id, m.created_at, m.text, m.platform_id
from journals j join messages m on m.journal_id = j.id order by j.id, m.id
"""


@dataclass(frozen=True, slots=True)
class Start:
    """From the spawn of the process to its first poll; `after_s` is its CPU in the 20 s that follow, with `postgres_s`
    that of the database's server.
    """

    wall_s: float
    cpu_s: float
    after_s: float
    postgres_s: float
    memory_mb: float


async def lived(gateway: GatewayProcess) -> None:
    """Write the years into a stopped gateway's database and workspace."""
    async with gateway.connected() as connection:
        async with connection.transaction():
            await connection.execute(_YEARS.format(conversations=CONVERSATIONS, rounds=ROUNDS))
        await connection.execute("vacuum analyze")
        rows = await connection.fetch(_LINES)
    key = journal_key(gateway.data / "keys" / "journal")
    for path, lines in groupby(rows, itemgetter("path")):
        file = gateway.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_bytes(render_entries(map(_entry, lines), key))
    for number in range(LOG_FILES):
        (gateway.data / "logs" / f"past-{number}.jsonl").write_bytes(b"x" * LOG_MB * 1024 * 1024)


def _entry(row: Record) -> JournalEntry:
    """As the gateway would have written it."""
    if row["kind"] != "user":
        return JournalEntry(row["entry_id"], row["kind"], row["created_at"], "SupaClaw", row["text"])
    chat = row["platform_id"].partition("-")[0]
    address, sender = Address("telegram", "years", chat), Sender(chat, "Ada")
    inbound = Inbound(address, sender, row["text"], row["platform_id"], row["created_at"], private=True, as_owner=True)
    return entry_of(Arrival(EntryId(row["entry_id"]), inbound, row["created_at"]))


async def starts(gateway: GatewayProcess, people: People, number: int = STARTS) -> AsyncIterator[Start]:
    """Start it, look for 20 s, stop it; so many times."""
    for _ in range(number):
        yield await _start(gateway, people)
        await gateway.terminate()


async def _start(gateway: GatewayProcess, people: People) -> Start:
    polls, began = people.telegram.polls, perf_counter()
    await gateway.spawn()
    await people.telegram.wait_for(lambda telegram: telegram.polls > polls, 60)
    wall, pid = perf_counter() - began, gateway.running.pid
    cpu = cpu_seconds(pid)
    await gateway.hears("ready")
    server = sum(map(cpu_seconds, postgres_pids(gateway.data)))
    await asyncio.sleep(AFTER)
    after = sum(map(cpu_seconds, postgres_pids(gateway.data))) - server
    return Start(wall, cpu, cpu_seconds(pid) - cpu, after, pss_mb(pid))


@asynccontextmanager
async def made(people: People) -> AsyncIterator[GatewayProcess]:
    """A gateway that was started once, and stopped."""
    with tempfile.TemporaryDirectory(prefix="supaclaw-bench-") as home:
        gateway = GatewayProcess(Path(home), fresh=True)
        gateway.configure(configured(people.telegram))
        try:
            await gateway.start()
            await gateway.terminate()
            yield gateway
        finally:
            await gateway.close()


def told(name: str, found: Start) -> str:
    """A line."""
    return (
        f"{name:34} {found.wall_s:5.2f} s to ready, {found.cpu_s:5.2f} s CPU; in the {AFTER:.0f} s after "
        f"{found.after_s:5.2f} s CPU, Postgres {found.postgres_s:5.2f} s; {found.memory_mb:4.0f} MB"
    )


async def run(number: int) -> None:
    """The same starts without a history, then with one: the first knows no file, the others what was remembered."""
    people = People()
    async with people.telegram, made(people) as gateway:
        async for start in starts(gateway, people, number):
            print(told("nothing yet", start), flush=True)
        await lived(gateway)
        (gateway.data / "journal" / "checked").unlink(missing_ok=True)
        names: Sequence[str] = ["years, no file known", *["years"] * number]
        async for start in starts(gateway, people, len(names)):
            print(told(names[0], start), flush=True)
            names = names[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=STARTS, help="of each kind")
    asyncio.run(run(parser.parse_args().starts))


if __name__ == "__main__":
    main()
