"""Sessions: one transcript each, from `/new` to `/new`."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from uuid import uuid4

from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Claim
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_value, statement


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One line of a list of sessions."""

    id: SessionId
    channel: str | None
    chat: str | None
    messages: int
    started_at: datetime
    last_at: datetime | None
    ended_at: datetime | None


async def start(conn: Connection, principal: PrincipalId, label: Label, *, unattended: bool = False) -> SessionId:
    """A new, empty session; `unattended` for a run that nobody asked for in a chat."""
    session = SessionId(uuid4())
    sql = "insert into sessions (id, principal_id, label, unattended) values ($1, $2, $3, $4)"
    await conn.execute(sql, session, principal, label, unattended)
    return session


async def lock(conn: Connection, session: SessionId) -> Label:
    """Hold the session: messages, ends and answers of one session happen one after another. Answers its label."""
    return Label(await conn.fetchval("select label from sessions where id = $1 for no key update", session))


async def lock_for(conn: Connection, session: SessionId, run: Claim, *, above: bool = False) -> Label:
    """`lock`, then the fence of a run in it, as `tasks.hold`; raises `RunLost`.

    `above`: locks the task above the run's first, as all that ends a tree does; for a run that may end or wait.
    """
    sql = """select label, hold($2, $3) is null
             from (select label from sessions where id = $1 for no key update) held left join (
               select from tasks where $4 and id = (select parent_id from tasks where id = $2) for update) up on true"""
    return Label(await conn.fetchval(sql, session, run.id, run.token, above))


async def end(conn: Connection, session: SessionId) -> None:
    """Close a session; the caller holds its lock."""
    await conn.execute("update sessions set ended_at = now() where id = $1", session)


async def end_chat(conn: Connection, session: SessionId) -> PrincipalId:
    """Close a chat, which the person's next session is shown; returns its principal."""
    sql = "update sessions set ended_at = now(), ended_by_person = true where id = $1 returning principal_id"
    return PrincipalId(await conn.fetchval(sql, session))


async def reopen(conn: Connection, session: SessionId) -> None:
    """Reopen a session, ended or not; the caller holds its lock."""
    await conn.execute("update sessions set ended_at = null, ended_by_person = false where id = $1", session)


async def is_open(conn: Connection, session: SessionId) -> bool:
    """Whether the session is open."""
    return bool(await conn.fetchval("select ended_at is null from sessions where id = $1", session))


async def end_unnamed(conn: Connection, session: SessionId) -> bool:
    """Close a task's own session, unless it has a name, so that other tasks continue it; the caller holds its lock."""
    sql = "update sessions set ended_at = now() where id = $1 and name is null returning true"
    return bool(await conn.fetchval(sql, session))


async def taint(conn: Connection, session: SessionId, label: Label) -> None:
    """Raise the session's label to at least this one; it never falls."""
    await conn.execute("update sessions set label = $2 where id = $1 and label < $2", session, label)


async def label(conn: Connection, session: SessionId) -> Label:
    """The session's trust label."""
    return Label(await conn.fetchval("select label from sessions where id = $1", session))


async def highest_label(conn: Connection, of: Sequence[SessionId]) -> Label:
    """The highest label of these sessions; the owner's if there are none."""
    return Label(await conn.fetchval("select coalesce(max(label), 0) from sessions where id = any($1)", of))


async def agent(conn: Connection, session: SessionId) -> str:
    """The agent of the conversation: 'default', or a program's."""
    return str(await conn.fetchval("select agent from sessions where id = $1", session))


async def label_at_work(conn: Connection, principal: PrincipalId) -> Label:
    """The highest label of the principal's sessions in which a task runs now: what one of them says may carry it."""
    sql = """select coalesce(max(s.label), 0) from tasks t join sessions s on s.id = t.session_id
             where t.principal_id = $1 and t.status = 'running'"""
    return Label(await conn.fetchval(sql, principal))


async def digest(conn: Connection, session: SessionId) -> str:
    """The digest of what was said so far."""
    return str(await conn.fetchval("select digest from sessions where id = $1", session))


async def set_digest(conn: Connection, session: SessionId, value: str) -> None:
    """Remember the digest of what was said so far."""
    await conn.execute("update sessions set digest = $2 where id = $1", session, value)


async def by_digest(conn: Connection, principal: PrincipalId, account: str, value: str) -> Address | None:
    """The API address whose open session holds exactly that conversation, the latest if there are several."""
    sql = """select a.channel, a.account, a.chat, a.thread
             from sessions s join addresses a on a.session_id = s.id
             where s.principal_id = $1 and s.digest = $3 and s.digest <> '' and s.ended_at is null
               and a.channel = 'api' and a.account = $2
               and not exists (select from messages m where m.session_id = s.id and m.kind = 'user'
                               and m.answered_by is null and m.closed_at is null)
             order by s.started_at desc limit 1"""
    return await fetch_first(conn, Address, sql, principal, account, value)


async def current(conn: Connection, address: Address) -> SessionId | None:
    """The session an address is in; None before the first message."""
    sql = "select session_id from addresses where (channel, account, chat, thread) = ($1, $2, $3, $4)"
    return await fetch_value(conn, SessionId, sql, *astuple(address))


async def recent(conn: Connection, limit: int) -> list[SessionSummary]:
    """The sessions last spoken in, newest first."""
    return await fetch_all(conn, SessionSummary, statement("transcript/recent_sessions"), limit)
