"""Heartbeats: the last one, its outcome and the cost of the day (one row of `meta`), and what the next may be about."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict

from gateway.domain.health import HeartbeatOutcome, HeartbeatResult
from gateway.domain.ids import PrincipalId
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.domain.work.tasks import Lane
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all
from gateway.store.transcript import sessions
from gateway.store.work import tasks

KIND = "heartbeat"
LONGEST = 4_000
"""Characters of an outcome that are kept here."""


class Pulse(BaseModel):
    """How the heartbeat stands."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    """Time of the last one; before the first, when waiting began."""
    looked: datetime
    """Concerns up to this time were handled."""
    outcome: HeartbeatOutcome = HeartbeatOutcome.WAITING
    text: str = ""
    day: date | None = None
    """The day, by UTC, whose beats are counted."""
    beats: int = 0
    asked: int = 0
    broke: date | None = None
    """The last day on which the owner was told that its money is used up."""
    failing: bool = False
    """The owner has been told that it fails."""

    @property
    def beat(self) -> HeartbeatResult:
        """The last one."""
        return HeartbeatResult(self.at, self.outcome, self.text)


async def begin(conn: Connection, now: datetime) -> Pulse:
    """How it stands; noted down as of `now` if it never was."""
    fresh = Pulse(at=now, looked=now)
    while (pulse := await get(conn)) is None:
        sql = "insert into meta (key, value) values ('heartbeat', $1) on conflict (key) do nothing"
        await conn.execute(sql, fresh.model_dump(mode="json"))
    return pulse


async def get(conn: Connection) -> Pulse | None:
    """How it stands; None before anybody waited for one."""
    sql = """select value, exists (select from tasks where dedupe = 'heartbeat'
                                   and status not in ('completed', 'failed', 'cancelled')) as live
             from meta where key = 'heartbeat'"""
    row = await conn.fetchrow(sql)
    if row is None:
        return None
    pulse = Pulse.model_validate(row["value"])
    if pulse.outcome is HeartbeatOutcome.RUNNING and not row["live"]:
        return pulse.model_copy(update={"outcome": HeartbeatOutcome.FAILED, "text": "it was cancelled"})
    return pulse


async def set_back(conn: Connection, now: datetime) -> Pulse:
    """The clock was ahead: nothing has happened or been looked after later than `now`."""
    sql = """update meta set value = value || jsonb_build_object(
               'at', least((value ->> 'at')::timestamptz, $1), 'looked', least((value ->> 'looked')::timestamptz, $1))
             where key = 'heartbeat'"""
    await conn.execute(sql, now)
    return await begin(conn, now)


async def claim(tx: Connection, before: datetime, after: Pulse) -> bool:
    """Note down the next beat, unless there was another since the one `before`."""
    sql = """update meta set value = value || $2
             where key = 'heartbeat' and (value ->> 'at')::timestamptz = $1 returning true"""
    return await tx.fetchval(sql, before, after.model_dump(mode="json", exclude={"failing"})) is not None


async def ask(tx: Connection, owner: PrincipalId, payload: JsonObject) -> None:
    """Queue a run that asks a model, in a session of its own; nothing happens while there is one."""
    session = await sessions.start(tx, owner, Label.OWNER, unattended=True)
    await tasks.create(tx, owner, KIND, Lane.AGENTS, payload=payload, dedupe=KIND, session=session)


async def ended(tx: Connection, outcome: HeartbeatOutcome, text: str, looked: datetime) -> None:
    """Record the outcome of a run; unless it failed, concerns up to `looked` count as handled."""
    known: dict[str, Json] = {"outcome": outcome.value, "text": storable(text)[:LONGEST]}
    if outcome is HeartbeatOutcome.FAILED:
        known["failing"] = True
    elif outcome is not HeartbeatOutcome.SKIPPED:
        known |= {"failing": False, "looked": looked.isoformat()}
    await tx.execute("update meta set value = value || $1 where key = 'heartbeat'", known)


async def spent(conn: Connection, since: datetime) -> float:
    """US dollars that heartbeats cost since then."""
    sql = """select coalesce(sum(s.cost_usd), 0) from task_steps s join tasks t on t.id = s.task_id
             where s.cost_usd > 0 and s.created_at >= $1 and t.kind = 'heartbeat'"""
    return float(await conn.fetchval(sql, since))


MAX_CONCERNS = 20

ConcernKind = Literal["overdue", "failed", "undelivered", "doubtful", "unanswered"]

CONCERN_AFTER: dict[str, timedelta] = {
    "overdue": timedelta(minutes=5),
    "failed": timedelta(minutes=1),
    "undelivered": timedelta(minutes=2),
    "unanswered": timedelta(minutes=10),
}
"""How long after it something is worth a word; also the time its row has to be committed, by whichever clock."""


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing: `what` names the work, or the channel, since `at`; `label` is the trust of that name."""

    kind: ConcernKind
    what: str
    at: datetime
    label: Label


_CONCERNS = """
select kind, what, at, label from (
  select 'overdue' as kind, s.name as what, s.next_run_at as at, s.label::int as label, $4::interval as after
  from schedules s
  where s.principal_id = $1 and s.next_run_at < $3 and s.paused_at is null and not exists (
    select from tasks t where t.id = s.task_id and t.status not in ('completed', 'failed', 'cancelled'))
  union all
  select 'failed', coalesce(t.input ->> 'name', t.kind), t.updated_at, coalesce((t.input ->> 'label')::int, 0),
         $5::interval
  from tasks t
  where t.principal_id = $1 and t.kind = 'agent' and t.status = 'failed'
    and t.updated_at > $2::timestamptz - $5::interval
  union all
  select case when bool_or(o.state = 'failed') then 'undelivered' else 'doubtful' end, a.channel,
         max(coalesce(o.sending_at, o.created_at)), 0, $6::interval
  from outbox o join messages m on m.id = o.message_id join addresses a on a.id = o.address_id
  where o.principal_id = $1 and o.state in ('failed', 'uncertain') and m.kind = 'assistant' and m.origin <> 'heartbeat'
  group by o.message_id, a.channel
  union all
  select 'unanswered', m.origin, m.created_at, 0, $7::interval
  from messages m
  where m.principal_id = $1 and m.address_id is not null and m.kind = 'user'
    and m.answered_by is null and m.closed_at is null
) found
where at + after > $2 and at + after <= $3 order by at limit $8
"""


async def concerns(conn: Connection, principal: PrincipalId, since: datetime, until: datetime) -> list[Concern]:
    """Concerns whose time came after `since` and by `until`, oldest first, at most `MAX_CONCERNS`.

    Each is found only once, if each look begins where the previous one ended.
    """
    values = (principal, since, until, *CONCERN_AFTER.values(), MAX_CONCERNS)
    return await fetch_all(conn, Concern, _CONCERNS, *values)
