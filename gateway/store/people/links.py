"""Links: codes by which chats of one person come into one session, and accounts that ask to be one of theirs."""

from dataclasses import dataclass
from datetime import datetime

from gateway.domain.conversation.inbound import Inbound
from gateway.domain.ids import AddressId, PrincipalId
from gateway.domain.people.access import identity_of
from gateway.domain.people.credentials import CodeRefusal
from gateway.domain.text.texts import one_line
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one, fetch_value
from gateway.store.delivery.addresses import AddressRow
from gateway.store.people import pairings, principals
from gateway.store.people.pairings import AccessRequest


@dataclass(frozen=True, slots=True)
class LinkRow:
    """The person whose chats a code joins, and the address whose session is the one to join."""

    principal_id: PrincipalId
    address_id: AddressId


@dataclass(frozen=True, slots=True)
class AccountClaim(AccessRequest):
    """An unknown account that gave a person's code; it becomes theirs once a known account of theirs says so."""

    code: str
    principal_id: PrincipalId
    address_id: AddressId
    expires_at: datetime


async def offer(conn: Connection, at: AddressRow, code: str) -> None:
    """A new code for the session of this address; its former one is void."""
    await conn.execute("delete from links where expires_at <= now() or (address_id = $1 and sender is null)", at.id)
    sql = "insert into links (code, principal_id, address_id) values ($1, $2, $3)"
    await conn.execute(sql, code, at.principal_id, at.id)


async def offered(conn: Connection, address: AddressId) -> str | None:
    """The code of this address that nobody has given yet."""
    sql = "select code from links where address_id = $1 and sender is null and expires_at > now()"
    return await fetch_value(conn, str, sql, address)


async def redeem(conn: Connection, who: str, code: str) -> LinkRow | CodeRefusal:
    """Use up a code; returns what it joins."""
    if await pairings.is_locked_out(conn, who):
        return CodeRefusal.LOCKED
    sql = """delete from links where code = $1 and expires_at > now() and sender is null
             returning principal_id, address_id"""
    link = await fetch_first(conn, LinkRow, sql, code)
    if link is None:
        await pairings.note_wrong_code(conn, who)
    return link or CodeRefusal.WRONG


async def claim(conn: Connection, inbound: Inbound, code: str) -> AccountClaim | CodeRefusal:
    """Note that an account gave this code, which is used up by that, and waits for a yes for ten minutes."""
    link = await redeem(conn, identity_of(inbound), code)
    if isinstance(link, CodeRefusal):
        return link
    at = inbound.address
    sql = """insert into links (code, principal_id, address_id, channel, account, chat, thread, sender, name)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9) returning *"""
    return await fetch_one(
        conn,
        AccountClaim,
        sql,
        code,
        link.principal_id,
        link.address_id,
        at.channel,
        at.account,
        at.chat,
        at.thread,
        inbound.sender.id,
        one_line(inbound.sender.name, principals.NAME),
    )


async def claims(conn: Connection, principal: PrincipalId) -> list[AccountClaim]:
    """The accounts that wait for this person's yes, by when that ends."""
    sql = """select * from links where principal_id = $1 and sender is not null and expires_at > now()
             order by expires_at"""
    return await fetch_all(conn, AccountClaim, sql, principal)


async def settle(conn: Connection, principal: PrincipalId, code: str) -> AccountClaim | None:
    """Take the claim with this code off the list; None if this person has none."""
    sql = """delete from links where code = $1 and principal_id = $2 and sender is not null and expires_at > now()
             returning *"""
    return await fetch_first(conn, AccountClaim, sql, code, principal)
