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
from gateway.store.connection.rows import fetch_all, statement
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


async def concerns(conn: Connection, principal: PrincipalId, since: datetime, until: datetime) -> list[Concern]:
    """Concerns whose time came after `since` and by `until`, oldest first, at most `MAX_CONCERNS`.

    Each is found only once, if each look begins where the previous one ended.
    """
    values = (principal, since, until, *CONCERN_AFTER.values(), MAX_CONCERNS)
    return await fetch_all(conn, Concern, statement("work/concerns"), *values)
