"""Heartbeats: when the last one was, what came of it, and what the day's have cost. Kept in one row of `meta`."""

from datetime import date, datetime

from pydantic import BaseModel, ConfigDict

from gateway.domain.ids import PrincipalId
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.domain.vitals import Beat, Outcome
from gateway.domain.work.tasks import Lane
from gateway.store import sessions
from gateway.store.connection.pool import Connection
from gateway.store.engine import tasks

KIND = "heartbeat"
LONGEST = 4_000
"""Characters of an outcome that are kept here."""


class Pulse(BaseModel):
    """How the heartbeat stands."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    """Of the last one; before there was one, when it was first waited for."""
    looked: datetime
    """What had come up by then has been looked after."""
    outcome: Outcome = Outcome.WAITING
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
    def beat(self) -> Beat:
        """The last one."""
        return Beat(self.at, self.outcome, self.text)


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
    if pulse.outcome is Outcome.RUNNING and not row["live"]:
        return pulse.model_copy(update={"outcome": Outcome.FAILED, "text": "it was cancelled"})
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
    noted = await tx.fetchval(sql, before, after.model_dump(mode="json", exclude={"failing"}))
    return noted is not None


async def ask(tx: Connection, owner: PrincipalId, payload: JsonObject) -> None:
    """Queue a run that asks a model, in a session of its own; nothing happens while there is one."""
    session = await sessions.start(tx, owner, Label.OWNER, unattended=True)
    await tasks.create(tx, owner, KIND, Lane.AGENTS, payload=payload, dedupe=KIND, session=session)


async def ended(tx: Connection, outcome: Outcome, text: str, looked: datetime) -> None:
    """What came of the run; unless it failed, what had come up by `looked` has been looked after."""
    known: dict[str, Json] = {"outcome": outcome.value, "text": storable(text)[:LONGEST]}
    if outcome is Outcome.FAILED:
        known["failing"] = True
    elif outcome is not Outcome.SKIPPED:
        known |= {"failing": False, "looked": looked.isoformat()}
    await tx.execute("update meta set value = value || $1 where key = 'heartbeat'", known)


async def spent(conn: Connection, since: datetime) -> float:
    """US dollars that heartbeats cost since then."""
    sql = """select coalesce(sum(s.cost_usd), 0) from task_steps s join tasks t on t.id = s.task_id
             where s.cost_usd > 0 and s.created_at >= $1 and t.kind = 'heartbeat'"""
    cost: float = await conn.fetchval(sql, since)
    return cost
