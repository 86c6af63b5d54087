"""What ends with a token: whatever its holder has set going."""

from dataclasses import dataclass

from gateway.domain.ids import PrincipalId
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses
from gateway.store.engine import tasks
from gateway.store.people import accounts
from gateway.store.scheduling import schedule_runs
from gateway.store.trust import reviews

WHY = "its token was revoked"
PAUSED = "The token {} was revoked. Its schedules are paused: {}. /schedules resume NAME resumes one."


@dataclass(frozen=True, slots=True)
class Ended:
    """Messages that get no answer any more, runs of triggers and schedules that were cancelled, paused schedules."""

    messages: int
    runs: int
    schedules: tuple[str, ...]

    def __str__(self) -> str:
        paused = ", ".join(self.schedules) or "none"
        return f"messages closed: {self.messages}; runs cancelled: {self.runs}; schedules paused: {paused}"


async def end(conn: Connection, principal: PrincipalId, name: str, account: str) -> Ended:
    """End what came by a token; `account` is what its chats and triggers are filed under."""
    held = await conn.fetch(
        "select id from addresses where account = $1 and channel in ('api', 'terminal') order by id for no key update",
        account,
    )
    chats = [row["id"] for row in held]
    spoken = await conn.fetch(
        """select session_id from addresses where id = any($1)
           union select session_id from messages where address_id = any($1) order by session_id""",
        chats,
    )
    sessions = [row["session_id"] for row in spoken]
    await conn.execute("update inbox set handled_at = now() where address_id = any($1) and handled_at is null", chats)
    closed = sum([await accounts.stop(conn, session) for session in sessions])
    for session in sessions:
        await reviews.close(conn, session)
    paused = await conn.fetch(
        """update schedules set paused_at = now(), updated_at = now()
           where completed_at is null and paused_at is null
             and (address_id = any($1) or split_part(asked_by, '/', 1) in (
               select id::text from tasks where session_id = any($2) and kind <> 'agent'
               union select task_id::text from triggers where account = $3))
           returning id, name""",
        chats,
        sessions,
        account,
    )
    live = await conn.fetch(
        """select t.id from tasks t where t.status not in ('completed', 'failed', 'cancelled') and (
             t.id in (select task_id from triggers where account = $1)
             or t.id in (select task_id from schedule_runs where schedule_id = any($2)))
           order by t.id""",
        account,
        [row["id"] for row in paused],
    )
    for row in live:
        await tasks.cancel(conn, row["id"])
        await schedule_runs.failed(conn, row["id"], WHY)
    ended = Ended(closed, len(live), tuple(row["name"] for row in paused))
    if paused and (at := await addresses.last_spoken_at(conn, principal)):
        await accounts.say(conn, at, PAUSED.format(name, ", ".join(ended.schedules)))
    return ended
