"""Invariants that hold after every statement, in the rows and in the messages that channels received."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from tests.fakes.channel import FakeChannel

BROKEN = r"""
select 'places of a session have gaps: ' || session_id from messages where seq is not null
  and session_id in (select session_id from messages where id > $1)
  group by session_id having min(seq) <> 1 or max(seq) <> count(*)
union all
select 'two live tasks answer session ' || session_id from tasks
  where seq > $2 and kind = 'chat' and status in ('pending', 'running') group by session_id having count(*) > 1
union all
select 'open_children of ' || t.id || ' is ' || t.open_children from tasks t
  where t.seq > $2 and t.status not in ('completed', 'failed', 'cancelled') and t.open_children <> (
    select count(*) from tasks c where c.parent_id = t.id and c.status not in ('completed', 'failed', 'cancelled'))
union all
select 'a task goes on below one that is over: ' || c.id from tasks c join tasks p on p.id = c.parent_id
  where c.seq > $2 and p.status in ('completed', 'failed', 'cancelled')
    and c.status not in ('completed', 'failed', 'cancelled')
union all
select 'an answer answers nothing: ' || m.id from messages m join tasks t on t.id = m.task_id
  where m.id > $1 and t.kind = 'chat' and m.kind = 'assistant' and m.final
    and not exists (select from messages a where a.answered_by = m.id)
union all
select 'answered and closed: ' || id from messages where id > $1 and answered_by is not null and closed_at is not null
union all
select 'a question is put twice: ' || substring(text from 'A\d+') from messages
  where id > $1 and kind = 'notice' and text ~ '^\*\*A\d+: (may I|what do)' group by 1 having count(*) > 1
union all
select 'an answer is acted on twice: A' || r.id from reviews r join tasks t on t.input -> 'review' = to_jsonb(r.id)
  where r.id > $4 and t.kind = 'approval' group by r.id having count(*) > 1
union all
select 'a question of a cancelled task is open: A' || r.id from reviews r join tasks t on t.id = r.task_id
  where r.id > $4 and r.kind = 'review' and r.state = 'open' and t.status = 'cancelled'
union all
select 'a tree asks for money twice: ' || t.master_id from reviews r join tasks t on t.id = r.task_id
  where r.id > $4 and r.state = 'open' and r.tool = 'task_budget' group by t.master_id having count(*) > 1
union all
select 'more is reserved than the day allows: ' || sum(reserved_usd) from tasks
  where status = 'running' and reserved_token = token
  having count(*) > 1 and sum(reserved_usd) + (select coalesce(sum(cost_usd), 0) from task_steps)
    > $5::float8 + 1e-9 + coalesce((select sum(value::float8) from meta where key like 'budget:%'), 0)
union all
select 'more is reserved than tree ' || t.master_id || ' has: ' || sum(t.reserved_usd) from tasks t
  join tasks m on m.id = t.master_id
  where t.status = 'running' and t.reserved_token = t.token and m.budget_usd is not null
  group by t.master_id, m.budget_usd
  having count(*) > 1 and sum(t.reserved_usd) + (select coalesce(sum(s.cost_usd), 0) from task_steps s
    join tasks n on n.id = s.task_id where n.master_id = t.master_id) > m.budget_usd + 1e-9
"""
STATE = """
select 'label of session ' || id as what, label::text as now from sessions where started_at >= $3
union all select 'label of message ' || id, label::text from messages where id > $1
union all select 'answer to ' || id, answered_by::text from messages where id > $1 and answered_by is not null
union all select 'end of task ' || id, status from tasks
  where seq > $2 and status in ('completed', 'failed', 'cancelled')
union all select 'token of ' || id, token::text from tasks where seq > $2
union all select 'answer to review ' || id, case state when 'done' then 'approved' else state end from reviews
  where id > $4 and state <> 'open' and tool <> 'call_in_doubt'
union all select 'delivery ' || id, state from outbox where message_id > $1 and state in ('sent', 'failed', 'uncertain')
"""
LOOK = f"select what, null as now from ({BROKEN}) broken (what) union all select what, now from ({STATE}) state"
OPEN = r"""
select 'nobody answers message ' || id from messages
  where id > $1 and kind = 'user' and answered_by is null and closed_at is null
    and session_id in (select id from sessions where not unattended)
union all
select 'task ' || kind || ' ' || id || ' is ' || status from tasks
  where seq > $2 and kind in ('chat', 'agent', 'approval') and status not in ('completed', 'failed', 'cancelled')
union all
select 'not delivered: ' || id from outbox where message_id > $1 and state in ('pending', 'sending')
union all
select 'a command has no effect: ' || id from inbox where id > $3 and handled_at is null
union all
select 'commands with another number of replies: ' || count(*) from inbox i where i.id > $3 and i.kind = 'command'
  having count(*) <> (select count(*) from messages m join addresses a on a.id = m.address_id
                      where m.id > $1 and m.kind = 'notice' and a.chat = $4
                        and m.text ~ '^(New|Stopped|Nothing|Today:|No limit|A\d+ (is|was|expired))')
union all
select 'nobody answers A' || id from reviews where id > $5 and state = 'open'
union all
select 'approved, and never run: A' || id from reviews where id > $5 and kind = 'approval' and state = 'approved'
union all
select 'still reserved: ' || reserved_usd from tasks where seq > $2 and status = 'completed' and reserved_token = token
"""
ALLOWED = """
select r.task_id || '/' || r.ordinal as call, count(*) as times from reviews r
  join audit a on a.subject = 'A' || r.id and a.event = 'approval approved' where r.id > $1 group by 1
"""


class Violation(AssertionError):
    """An invariant that doesn't hold."""


@dataclass
class Invariants:
    """Of one schedule: rows that were there before are left out."""

    monitor: asyncpg.Connection
    channels: list[FakeChannel] = field(default_factory=list)
    """The messenger, by each process that spoke to it."""
    acts: list[str] = field(default_factory=list)
    """The keys of calls that must not run twice, unless a person approves it."""
    paid: list[str] = field(default_factory=list)
    """Those of calls that must not run at all without an approval, and once with it."""
    deadlocks: list[str] = field(default_factory=list)
    day_usd: float | None = None
    """The limit of the day's money."""
    files: Callable[[], Awaitable[list[str]]] | None = None
    """The faults of shared files."""
    _since: tuple[Any, ...] = ()
    _state: dict[str, str] = field(default_factory=dict)

    async def begin(self) -> None:
        row = await self.monitor.fetchrow(
            """select coalesce((select max(id) from messages), 0), coalesce((select max(seq) from tasks), 0), now(),
                      coalesce((select max(id) from inbox), 0), coalesce((select max(id) from reviews), 0)"""
        )
        assert row is not None
        self._since = tuple(row)

    @property
    def last_review(self) -> int:
        """The last question of the schedules before."""
        return int(self._since[-1])

    async def check(self) -> None:
        """Raise `Violation` for the first that doesn't hold now."""
        message, task, at, _, review = self._since
        rows = await self.monitor.fetch(LOOK, message, task, at, review, self.day_usd)
        wrong = [row["what"] for row in rows if row["now"] is None]
        state = {row["what"]: row["now"] for row in rows if row["now"] is not None}
        for what, before in self._state.items():
            now = state.get(what)
            grows = what.startswith(("label", "token"))
            if now is None or (int(now) < int(before) if grows else now != before):
                wrong.append(f"{what} was {before} and is {now}")
        self._state = state
        shown = Counter(message.key for channel in self.channels for message in channel.shown)
        wrong += [f"shown twice: {key}" for key, times in shown.items() if times > 1]
        wrong += await self._unwanted()
        wrong += await self.files() if self.files else []
        wrong += [f"a deadlock: {statement}" for statement in self.deadlocks]
        if wrong:
            raise Violation("; ".join(wrong))

    async def _unwanted(self) -> list[str]:
        """The calls that ran more often than they may."""
        acted, paid = Counter(self.acts), Counter(self.paid)
        if not paid and max(acted.values(), default=0) < 2:
            return []
        allowed = Counter({row["call"]: row["times"] for row in await self.monitor.fetch(ALLOWED, self._since[-1])})
        ran = [(key, times, 1 + allowed[key]) for key, times in acted.items()]
        ran += [(key, times, allowed[key]) for key, times in paid.items()]
        return [f"{key} ran {times} times, {most} allowed" for key, times, most in ran if times > most]

    async def check_end(self, chat: str) -> None:
        """The same, when there is nothing left to do."""
        await self.check()
        message, task, _, arrival, review = self._since
        if left := [row[0] for row in await self.monitor.fetch(OPEN, message, task, arrival, chat, review)]:
            raise Violation("; ".join(left))
