"""Links: codes by which accounts of one person come into one session."""

from dataclasses import dataclass

from gateway.domain.codes import Refusal
from gateway.domain.ids import AddressId, PrincipalId
from gateway.store.addresses import AddressRow
from gateway.store.people import guesses
from gateway.store.pool import Connection


@dataclass(frozen=True, slots=True)
class LinkRow:
    """Whose accounts a code joins, and the address whose session is the one to join."""

    principal_id: PrincipalId
    address_id: AddressId


async def offer(conn: Connection, at: AddressRow, code: str) -> None:
    """A new code for the session of this address; its former one is void."""
    await conn.execute("delete from links where expires_at <= now() or address_id = $1", at.id)
    await conn.execute(
        "insert into links (code, principal_id, address_id) values ($1, $2, $3)", code, at.principal_id, at.id
    )


async def redeem(conn: Connection, who: str, code: str) -> LinkRow | Refusal:
    """What a code joins; it is used up by that."""
    if await guesses.locked(conn, who):
        return Refusal.LOCKED
    row = await conn.fetchrow(
        "delete from links where code = $1 and expires_at > now() returning principal_id, address_id", code
    )
    if row is None:
        await guesses.wrong(conn, who)
        return Refusal.WRONG
    return LinkRow(**row)
