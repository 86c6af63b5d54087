"""Years of use, written by SQL: one long chat, and beside it whatever else a gateway keeps for ever."""

from tests.store.world import World

TURNS = 10_000
"""Of the long chat: a question and an answer each."""
SUMMARISED = 2 * TURNS - 100
RUNS = 2_000
"""Sessions of their own: schedules, triggers, API clients."""

_PAST = """
insert into journals (principal_id, session_id, path, closed_at, filed_at)
  select $1, $2, 'memory/chat-' || n || '.md', now(), now() from generate_series(1, {runs}) n;
insert into journals (principal_id, session_id, path) values ($1, $2, 'sessions/2026-01-01/00-00-00.md');
insert into tasks (id, master_id, kind, lane, principal_id, session_id, status, created_at, updated_at)
  select md5('turn ' || n)::uuid, md5('turn ' || n)::uuid, 'chat', 'chat', $1, $2,
         case when n % 50 = 0 then 'failed' else 'completed' end, t, t
  from generate_series(1, {turns}) n, lateral (select now() - interval '1 year' + n * interval '50 minutes' as t) at;
insert into sessions (id, principal_id, label, next_seq, started_at, ended_at)
  select md5('run ' || n)::uuid, $1, 0, 5, now() - interval '1 year' + n * interval '4 hours', now()
  from generate_series(1, {runs}) n;
update sessions set ended_by_person = true where id <> $2 and started_at > now() - interval '6 months';
insert into memories (principal_id, kind, text, category, importance, label, origin, content_hash)
  select $1, 'memory', 'fact ' || n, case when n % 50 = 0 then 'preference' else 'fact' end, n % 10 / 10.0, 0,
         'compaction', sha256(n::text::bytea)
  from generate_series(1, {turns}) n;
insert into memories (principal_id, kind, text, label, origin, session_id)
  select $1, 'summary', 'in short', 0, 'summary', id from sessions where ended_by_person;
insert into messages (session_id, principal_id, seq, kind, text, label, origin, closed_at, created_at, journal_id)
  select s.id, $1, k, case when k % 2 = 1 then 'user' else 'assistant' end, 'of a run', 0, 'schedule', now(),
         s.started_at, (select min(id) from journals)
  from sessions s, generate_series(1, 4) k where s.id <> $2;
insert into messages (session_id, principal_id, address_id, seq, kind, text, label, origin, platform_id, task_id,
                      closed_at, created_at, tokens, journal_id)
  select $2, $1, $3, n, case when n % 2 = 1 then 'user' else 'assistant' end, 'words of message ' || n, 0, 'fake',
         'p' || n, case when n % 2 = 0 then md5('turn ' || n / 2)::uuid end, case when n % 2 = 1 then now() end,
         now() - interval '1 year' + n * interval '25 minutes', 10,
         (select min(id) from journals) + least(n / 10, {runs} - (n < {turns} * 2 - 100)::int)
  from generate_series(1, {turns} * 2) n;
insert into messages (session_id, principal_id, seq, kind, text, label, origin, covers, journal_id)
  select $2, $1, {turns} * 2 + 1, 'summary', 'in short', 0, 'gateway', {turns} * 2 - 100, max(id) from journals;
update sessions set next_seq = {turns} * 2 + 2 where id = $2;
insert into task_steps (task_id, principal_id, kind, name, cost_usd, created_at)
  select id, $1, 'model', 'a', 0.01, created_at from tasks;
insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, platform_time, handled_at,
                   journal_id)
  select $1, $3, 'fake', 'bot', '1', 'p' || n, case when n % 20 = 0 then 'command' else 'message' end, now(), now(),
         (select min(id) from journals) + n % {runs}
  from generate_series(1, {turns}) n;
insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, platform_time, handled_at)
  select $1, $3, 'api', 'key', 'c' || n, 'k' || n, 'message', now(), now() from generate_series(1, {turns}) n;
insert into outbox (principal_id, address_id, message_id, text, state, sent_at, created_at)
  select $1, $3, id, text, case when seq % 100 = 0 then 'failed' else 'sent' end, created_at, created_at
  from messages where kind = 'assistant' and session_id = $2;
insert into files (principal_id, path, mime, size, sha256, derived_at)
  select $1, 'files/' || n, 'text/plain', 1, md5(n::text), now() from generate_series(1, {runs}) n;
insert into attachments (principal_id, session_id, message_id, place, channel, ref, name, mime, state, file_id,
                         created_at)
  select $1, $2, m.id, 0, 'fake', 'ref', f.path, 'text/plain', 'stored', f.id, m.created_at
  from messages m join files f on f.path = 'files/' || (m.seq / 10 + 1) where m.seq % 2 = 1 and m.session_id = $2;
insert into tasks (id, master_id, kind, lane, principal_id, session_id, status, updated_at)
  select id, id, 'agent', 'agents', $1, id, case when random() < 0.1 then 'failed' else 'completed' end, started_at
  from sessions where id <> $2;
insert into schedules (principal_id, name, prompt, cron, origin) values ($1, 'daily', 'do it', '0 9 * * *', 'fake');
insert into schedule_runs (schedule_id, slot, principal_id, task_id, executed_at, produced_at, message_id, delivered_at)
  select (select id from schedules), t.updated_at, $1, t.id, now(), now(),
         (select id from messages m where m.session_id = t.session_id order by seq desc limit 1), now()
  from tasks t where kind = 'agent';
"""


async def lived_long(world: World) -> None:
    """Fill the world's database; statistics are as autovacuum would leave them."""
    arguments = (f"'{world.principal}'::uuid", f"'{world.session}'::uuid", str(world.address))
    script = _PAST.format(turns=TURNS, runs=RUNS)
    for number, argument in enumerate(arguments, 1):
        script = script.replace(f"${number}", argument)
    await world.do(script)
    await world.do("vacuum analyze")
