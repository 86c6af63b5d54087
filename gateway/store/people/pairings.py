"""Pairings: access requests and their outcome; too many wrong codes lock a sender out for a while."""

from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Literal

from gateway.domain.conversation.inbound import Address, Inbound
from gateway.domain.conversation.transcript import Notice
from gateway.domain.ids import PrincipalId
from gateway.domain.people.credentials import CodeRefusal, parse_code
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line
from gateway.store.connection.pool import Connection, lock_name
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one
from gateway.store.delivery import addresses, outbox
from gateway.store.delivery.outbox import OutboxPart
from gateway.store.people import principals
from gateway.store.transcript import messages, sessions
from gateway.store.trust import audit
from gateway.store.trust.audit import Event

MAX_WRONG_CODES = 5
APPROVER = "pairing"
"""Approvers count as one sender of codes, wherever they type them."""


async def is_locked_out(conn: Connection, who: str) -> bool:
    """Whether no code of theirs counts now; until the transaction ends nobody else guesses under this name."""
    await lock_name(conn, f"supaclaw.guess {who}")
    sql = "select exists (select from guesses where who = $1 and wrong >= $2 and until > now())"
    return bool(await conn.fetchval(sql, who, MAX_WRONG_CODES))


async def note_wrong_code(conn: Connection, who: str) -> None:
    """One more; the last one allowed starts the ten minutes anew."""
    await conn.execute("delete from guesses where until <= now()")
    sql = """insert into guesses (who) values ($1) on conflict (who) do update set wrong = guesses.wrong + 1,
               until = case when guesses.wrong + 1 < $2 then guesses.until else now() + interval '10 minutes' end"""
    await conn.execute(sql, who, MAX_WRONG_CODES)


State = Literal["open", "approved", "denied"]

AT_ONCE = 10
"""Open requests on one channel; who comes then gets no answer."""
WELCOME = "You now have access: just write to me. /help lists the commands."


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """Somebody who asks for something, and where. `name` is the person's own word for it."""

    channel: str
    account: str
    chat: str
    thread: str
    sender: str
    name: str

    def __str__(self) -> str:
        """For a line of Markdown: what a stranger wrote is shown as it is and marks nothing up."""
        return f"`{self.name or '?'}` on {self.channel} (id `{one_line(self.sender, 64)}`)"

    @property
    def identity(self) -> str:
        """How the person is known once let in."""
        return f"{self.channel}:{self.sender}"

    @property
    def address(self) -> Address:
        """The chat in which the person asked."""
        return Address(self.channel, self.account, self.chat, self.thread)


@dataclass(frozen=True, slots=True)
class PairingRow(AccessRequest):
    """A person's last request: open until `expires_at`, or what was decided."""

    id: int
    principal_id: PrincipalId | None
    code: str
    state: State
    asked_at: datetime
    expires_at: datetime
    decided_at: datetime | None


async def standing(conn: Connection, inbound: Inbound) -> State | None:
    """The state of this person's last request, while it counts; None if they may ask."""
    sql = """select state from pairings where channel = $1 and sender = $2
               and (state = 'approved' or expires_at > now() or decided_at > now() - interval '1 day')"""
    found: State | None = await conn.fetchval(sql, inbound.address.channel, inbound.sender.id)
    return found


async def request(conn: Connection, inbound: Inbound, code: str) -> PairingRow | None:
    """Open a request; None for who has an open one, was denied within a day or let in, and where too many wait."""
    at = inbound.address
    await lock_name(conn, f"supaclaw.pairing {at.channel}")
    await conn.execute("delete from pairings where state = 'open' and expires_at < now() - interval '1 day'")
    sql = """insert into pairings (channel, account, chat, thread, sender, name, code)
             select $1, $2, $3, $4, $5, $6, $7
             where (select count(*) from pairings where channel = $1 and state = 'open' and expires_at > now()) < $8
             on conflict (channel, sender) do update set account = $2, chat = $3, thread = $4, name = $6, code = $7,
               state = 'open', asked_at = now(), expires_at = default, decided_at = null
             where pairings.state <> 'approved' and pairings.expires_at <= now()
               and coalesce(pairings.decided_at <= now() - interval '1 day', true)
             returning *"""
    whose = (*astuple(at), inbound.sender.id, one_line(inbound.sender.name, principals.NAME))
    return await fetch_first(conn, PairingRow, sql, *whose, code, AT_ONCE)


async def open_requests(conn: Connection) -> list[PairingRow]:
    """Open requests, the oldest first."""
    sql = "select * from pairings where state = 'open' and expires_at > now() order by id"
    return await fetch_all(conn, PairingRow, sql)


async def admitted(conn: Connection) -> list[PairingRow]:
    """Approved requests, by channel and name."""
    sql = "select * from pairings where state = 'approved' order by channel, name, id"
    return await fetch_all(conn, PairingRow, sql)


async def paired(conn: Connection) -> frozenset[str]:
    """The identities that were let in by a code."""
    rows = await conn.fetch("select channel || ':' || sender as identity from pairings where state = 'approved'")
    return frozenset(row["identity"] for row in rows)


async def approve(conn: Connection, typed: str) -> PairingRow | CodeRefusal:
    """Approve the request with this code, and say so where it came from. All approvers count as one guesser."""
    if await is_locked_out(conn, APPROVER):
        return CodeRefusal.LOCKED
    sql = "select * from pairings where code = $1 and state = 'open' and expires_at > now() for update"
    asked = await fetch_first(conn, PairingRow, sql, parse_code(typed) or "")
    if asked is None:
        await note_wrong_code(conn, APPROVER)
        return CodeRefusal.WRONG
    member = await principals.ensure_member(conn, asked.name or asked.identity, asked.identity)
    await _greet(conn, asked, member)
    sql = "update pairings set state = 'approved', decided_at = now(), principal_id = $2 where id = $1 returning *"
    row = await fetch_one(conn, PairingRow, sql, asked.id, member)
    await audit.note(conn, Event.MEMBER_LET_IN, str(asked.id), principal=member, detail=asked.identity)
    return row


async def deny(conn: Connection, which: str) -> PairingRow | CodeRefusal:
    """Turn down an open request or take back what was allowed, by number or code."""
    sql = """update pairings set state = 'denied', decided_at = now()
             where (id::text = $1 or code = $2) and (state = 'approved' or (state = 'open' and expires_at > now()))
             returning *"""
    row = await fetch_first(conn, PairingRow, sql, which.strip(), parse_code(which))
    if row is not None and row.principal_id is not None:
        await audit.note(conn, Event.MEMBER_REMOVED, str(row.id), principal=row.principal_id)
    return row or CodeRefusal.WRONG


async def _greet(conn: Connection, asked: PairingRow, member: PrincipalId) -> None:
    at = await addresses.lock(conn, asked.address)
    if at is None or at.principal_id != member:
        at = await addresses.place(conn, asked.address, member, await sessions.start(conn, member, Label.KNOWN))
    await sessions.lock(conn, at.session_id)
    said = await messages.say(conn, at.session_id, member, Notice(WELCOME), label=Label.KNOWN, address=at.id)
    await outbox.put(conn, member, at.id, said.id, [OutboxPart(WELCOME)])
