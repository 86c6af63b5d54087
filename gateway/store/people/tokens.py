"""Credentials of the web and the APIs, stored as hashes: bearer tokens, browser sessions, and their revocation."""

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NewType
from uuid import UUID, uuid4

from gateway.domain.errors import OwnerMustAct, required
from gateway.domain.ids import PrincipalId
from gateway.domain.memory.memories import DEFAULT_AGENT
from gateway.domain.people.credentials import Scope
from gateway.store.connection.pool import Connection, Database
from gateway.store.connection.rows import fetch_all, fetch_first
from gateway.store.delivery import addresses
from gateway.store.people import accounts
from gateway.store.trust import audit, reviews
from gateway.store.trust.audit import Event
from gateway.store.work import schedule_runs, tasks

REVOKED = "its token was revoked"
SCHEDULES_PAUSED = "The token {} was revoked. Its schedules are paused: {}. /schedules resume NAME resumes one."


@dataclass(frozen=True, slots=True)
class EndedWork:
    """Messages that get no answer any more, runs of triggers and schedules that were cancelled, paused schedules."""

    messages: int
    runs: int
    schedules: tuple[str, ...]

    def __str__(self) -> str:
        paused = ", ".join(self.schedules) or "none"
        return f"messages closed: {self.messages}; runs cancelled: {self.runs}; schedules paused: {paused}"


async def end_work(conn: Connection, principal: PrincipalId, name: str, account: str) -> EndedWork:
    """End what came by a token; `account` is what its chats and triggers are filed under."""
    sql = "select id from addresses where account = $1 and channel in ('api', 'terminal') order by id for no key update"
    chats = [row["id"] for row in await conn.fetch(sql, account)]
    sql = """select session_id from addresses where id = any($1)
             union select session_id from messages where address_id = any($1) order by session_id"""
    sessions = [row["session_id"] for row in await conn.fetch(sql, chats)]
    await conn.execute("update inbox set handled_at = now() where address_id = any($1) and handled_at is null", chats)
    closed = sum([await accounts.stop(conn, session) for session in sessions])
    sql = """update schedules set paused_at = now(), updated_at = now()
             where completed_at is null and paused_at is null
               and (address_id = any($1) or split_part(asked_by, '/', 1) in (
                 select id::text from tasks where session_id = any($2) and kind <> 'agent'
                 union select task_id::text from triggers where account = $3))
             returning id, name"""
    paused = await conn.fetch(sql, chats, sessions, account)
    sql = """select t.id from tasks t where t.status not in ('completed', 'failed', 'cancelled') and (
               t.id in (select task_id from triggers where account = $1)
               or t.id in (select task_id from schedule_runs where schedule_id = any($2)))
             order by t.id"""
    live = await conn.fetch(sql, account, [row["id"] for row in paused])
    for row in live:
        await tasks.cancel(conn, row["id"])
        await schedule_runs.mark_failed(conn, row["id"], REVOKED)
    ended = EndedWork(closed, len(live), tuple(row["name"] for row in paused))
    if paused and (at := await addresses.last_spoken_at(conn, principal)):
        await accounts.say(conn, at, SCHEDULES_PAUSED.format(name, ", ".join(ended.schedules)))
    await reviews.close(conn, *sessions)  # which takes the audit's lock
    return ended


TokenId = NewType("TokenId", UUID)
Kind = Literal["bearer", "cookie"]

PREFIX = "claw_"
COOKIE_IDLE = timedelta(hours=12)
COOKIE_LIFE = timedelta(days=30)
TOUCH_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A credential, without the credential."""

    id: TokenId
    principal_id: PrincipalId
    name: str
    kind: Kind
    scopes: tuple[str, ...]
    """Of `Scope`; "files:notes" is that of files for one folder."""
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    source: str | None = None
    """It may trigger for this source and for no other."""
    as_owner: bool = False
    """Its messages count as the owner's."""
    agent: str | None = None
    """The agent whose memories are its own; None for a browser session."""
    shared: bool = False
    """It may read the owner's memory, too."""

    def valid(self, now: datetime) -> bool:
        """Not expired; a browser session also ends when nobody uses it."""
        if self.expires_at is not None and self.expires_at <= now:
            return False
        return self.kind == "bearer" or now - (self.last_used_at or self.created_at) < COOKIE_IDLE


@dataclass(frozen=True, slots=True)
class LiveToken(TokenRow):
    """A credential in use, with the grounds of its right: scopes, and its principal's role, accounts and pairings."""

    grounds: frozenset[str] = frozenset()

    def entitles(self, before: "LiveToken", now: datetime) -> bool:
        """Whether all that it gave before, it still gives."""
        return self.valid(now) and before.grounds <= self.grounds


_LIVE = """
select t.*, t.scopes || p.role || p.identities || case when t.shared then '{shared}'::text[] else '{}' end
  || array(select 'paired ' || id from pairings where principal_id = p.id and state = 'approved') as grounds
from api_tokens t join principals p on p.id = t.principal_id where revoked_at is null"""


def new_token() -> str:
    """A new bearer token: 256 random bits behind a prefix that scanners recognise."""
    return PREFIX + secrets.token_urlsafe(32)


def sha256(secret: str) -> str:
    """How a secret is stored and looked up; it is random, so it needs no salt."""
    return hashlib.sha256(secret.encode()).hexdigest()


async def create(
    database: Database,
    principal: PrincipalId,
    name: str,
    scopes: Collection[str],
    *,
    kind: Kind = "bearer",
    source: str | None = None,
    as_owner: bool = False,
    agent: str | None = None,
    shared: bool = False,
    folder: str | None = None,
    plain: str | None = None,
    expires_at: datetime | None = None,
) -> tuple[TokenRow, str]:
    """A new token and its plain text, which nothing can tell again; raises `OwnerMustAct` for a taken name.

    `agent` is its name unless it is given. `folder` is that of the workspace which the scope files opens. `plain` is
    of `new_token`, for a caller that stores it before.
    """
    if agent == DEFAULT_AGENT:
        raise OwnerMustAct(f"{agent} is your own agent; give the token's agent another name")
    if folder and Scope.FILES not in scopes:
        raise OwnerMustAct("a folder is for tokens that read files: add the scope files")
    plain = plain or new_token()
    held = [f"{each}:{folder}" if folder and each is Scope.FILES else each.value for each in map(Scope, scopes)]
    named = agent or (f"token {name}" if name == DEFAULT_AGENT else name)
    sql = """insert into api_tokens (id, principal_id, name, kind, sha256, scopes, expires_at, source, as_owner,
                                     agent, shared)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             on conflict (name) where kind = 'bearer' and revoked_at is null do nothing returning *"""
    values = (sha256(plain), held, expires_at, source, as_owner, named if kind == "bearer" else None, shared)
    async with database.transaction() as conn:
        taken = OwnerMustAct(f"a token named {name} already exists; choose another name or revoke it first")
        row = required(await fetch_first(conn, TokenRow, sql, uuid4(), principal, name, kind, *values), taken)
        event = Event.TOKEN_MADE if kind == "bearer" else Event.SIGNED_IN
        await audit.note(conn, event, str(row.id), principal=principal)
    return row, plain


async def sign_in(database: Database, principal: PrincipalId, name: str, now: datetime) -> tuple[TokenRow, str]:
    """A new browser session and the value of its cookie."""
    plain, until = secrets.token_urlsafe(32), now + COOKIE_LIFE
    return await create(
        database, principal, name, [Scope.ADMIN], kind="cookie", as_owner=True, plain=plain, expires_at=until
    )


async def spend(database: Database, code: str) -> bool:
    """Use up a code that works once on this database, ever; False if it was used before."""
    sql = "insert into meta (key, value) values ('code ' || $1, 'true') on conflict do nothing returning true"
    return bool(await database.run(lambda tx: tx.fetchval(sql, sha256(code))))


async def find(database: Database, plain: str) -> LiveToken | None:
    """The credential with this plain text unless it was revoked; whether it is still `valid` is for the caller."""
    return await database.read(lambda conn: fetch_first(conn, LiveToken, f"{_LIVE} and sha256 = $1", sha256(plain)))


async def live(database: Database, ids: Collection[TokenId]) -> dict[TokenId, LiveToken]:
    """Those of them that are not revoked, as they are now."""
    async with database.connection() as conn:
        return {row.id: row for row in await fetch_all(conn, LiveToken, f"{_LIVE} and t.id = any($1)", list(ids))}


async def renew(database: Database, before: str, plain: str, expires_at: datetime) -> bool:
    """Replace the plain text of a bearer token; False if it was replaced or revoked before."""
    sql = """update api_tokens set sha256 = $2, expires_at = $3
             where sha256 = $1 and kind = 'bearer' and revoked_at is null returning true"""
    return bool(await database.run(lambda tx: tx.fetchval(sql, sha256(before), sha256(plain), expires_at)))


async def touch(database: Database, token: TokenRow, now: datetime) -> None:
    """Note that it was used, at most once a minute."""
    if token.last_used_at is None or now - token.last_used_at >= TOUCH_EVERY:
        async with database.connection() as conn:
            await conn.execute("update api_tokens set last_used_at = $2 where id = $1", token.id, now)


async def list_all(database: Database) -> list[TokenRow]:
    """Every live bearer token, by name."""
    sql = "select * from api_tokens where kind = 'bearer' and revoked_at is null order by name"
    return await database.read(lambda conn: fetch_all(conn, TokenRow, sql))


async def revoke(database: Database, name: str, plain: str | None = None) -> EndedWork | None:
    """End the bearer token with this name and what came by it, or only if it is `plain`; None if there is none."""

    async def work(tx: Connection) -> EndedWork | None:
        sql = """update api_tokens set revoked_at = now()
                 where name = $1 and kind = 'bearer' and revoked_at is null and ($2::text is null or sha256 = $2)
                 returning id, principal_id"""
        row = await tx.fetchrow(sql, name, plain and sha256(plain))
        if row is None:
            return None
        ended = await end_work(tx, row["principal_id"], name, str(row["id"]))
        await audit.note(tx, Event.TOKEN_REVOKED, str(row["id"]), principal=row["principal_id"])
        return ended

    return await database.run(work)


async def sign_out(database: Database, session: TokenRow, *, everywhere: bool) -> None:
    """End a browser session, or every one of its principal."""
    sql = """update api_tokens set revoked_at = now()
             where principal_id = $1 and kind = 'cookie' and revoked_at is null and ($3 or id = $2)"""
    await database.run_alone(lambda conn: conn.execute(sql, session.principal_id, session.id, everywhere))
