"""Addresses of conversations with their current sessions, and the facts that channels remember."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import datetime

from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import AddressId, PrincipalId, SessionId
from gateway.domain.settings import ThinkingLevel, VoiceReply
from gateway.store.connection.pool import Connection, Database, lock_name
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one, read_row

_AT = "select * from addresses where (channel, account, chat, thread) = ($1, $2, $3, $4)"


@dataclass(frozen=True, slots=True)
class AddressRow:
    """A known address."""

    id: AddressId
    principal_id: PrincipalId
    channel: str
    account: str
    chat: str
    thread: str
    private: bool
    session_id: SessionId
    model: str | None
    """The model chosen for this chat; None: as configured."""
    thinking: ThinkingLevel | None
    """How much models think in this chat; None: as configured."""
    model_until: datetime | None
    """When the choice of the model ends; None: it doesn't by itself."""
    voice: VoiceReply | None
    """When answers are read aloud in this chat; None: as configured."""

    @property
    def address(self) -> Address:
        """Without its keys."""
        return Address(self.channel, self.account, self.chat, self.thread)


async def lock(conn: Connection, address: Address) -> AddressRow | None:
    """The address, held until the transaction ends; the caller locks its session next."""
    return await fetch_first(conn, AddressRow, f"{_AT} for no key update", *astuple(address))


async def reserve(conn: Connection, address: Address) -> None:
    """Let nobody else add this address until the transaction ends."""
    await lock_name(conn, "\n".join(("supaclaw.address", *astuple(address))))


async def lock_by_id(conn: Connection, address: AddressId) -> AddressRow:
    """The same, by its id."""
    return await fetch_one(conn, AddressRow, "select * from addresses where id = $1 for no key update", address)


async def lock_joined(conn: Connection, address: AddressId) -> AddressRow:
    """The same together with every address in its session, all in one order, so that nobody waits in a circle.

    Moving an address out of a session or into one takes the locks of all that are in it.
    """
    while True:
        with suppress(_Moved):
            async with conn.transaction():  # what was locked in vain is let go before the next try
                return await _locked_joined(conn, address)


async def lock_session(conn: Connection, session: SessionId) -> bool:
    """Lock every address in a session; False if it has none."""
    first = await conn.fetchval("select min(id) from addresses where session_id = $1", session)
    if first is not None:
        await lock_joined(conn, first)
    return first is not None


async def _locked_joined(conn: Connection, address: AddressId) -> AddressRow:
    joined = "from addresses where session_id = (select session_id from addresses where id = $1) order by id"
    held = await conn.fetch(f"select * {joined} for no key update", address)
    if [row["id"] for row in held] != [row["id"] for row in await conn.fetch(f"select id {joined}", address)]:
        raise _Moved
    return next(read_row(AddressRow, row) for row in held if row["id"] == address)


class _Moved(Exception):
    """Addresses were joined or parted while we waited for them."""


async def is_temporary(conn: Connection, session: SessionId) -> bool:
    """Whether a temporary chat is in the session, as `Address.temporary`."""
    sql = """select exists (select from addresses
             where session_id = $1 and channel = 'web' and starts_with(thread, 'temporary-'))"""
    return bool(await conn.fetchval(sql, session))


async def temporary_before(conn: Connection, before: datetime) -> list[tuple[PrincipalId, SessionId]]:
    """The sessions of temporary chats in which something was said, the last time before this, with their person."""
    sql = """select distinct s.principal_id, s.id from addresses a join sessions s on s.id = a.session_id
             where a.channel = 'web' and starts_with(a.thread, 'temporary-') and s.next_seq > 1 and s.spoken_at < $1"""
    return [(PrincipalId(row["principal_id"]), SessionId(row["id"])) for row in await conn.fetch(sql, before)]


async def shared(conn: Connection, session: SessionId) -> bool:
    """Whether several addresses are in a session."""
    return bool(await conn.fetchval("select count(*) > 1 from addresses where session_id = $1", session))


async def get(conn: Connection, address: AddressId) -> AddressRow:
    """A known address by its id."""
    return await fetch_one(conn, AddressRow, "select * from addresses where id = $1", address)


async def find(conn: Connection, address: Address) -> AddressRow | None:
    """The address, unlocked, if anything was ever said there."""
    return await fetch_first(conn, AddressRow, _AT, *astuple(address))


async def add(
    conn: Connection, address: Address, principal: PrincipalId, session: SessionId, *, private: bool
) -> AddressRow:
    """A new address; the caller has reserved it."""
    sql = """insert into addresses (channel, account, chat, thread, principal_id, private, session_id)
             values ($1, $2, $3, $4, $5, $6, $7) returning *"""
    return await fetch_one(conn, AddressRow, sql, *astuple(address), principal, private, session)


async def place(conn: Connection, address: Address, principal: PrincipalId, session: SessionId) -> AddressRow:
    """A private address, held, as this principal's in this session: made, or handed over if it was another's."""
    await reserve(conn, address)
    if at := await lock(conn, address):
        return await hand_over(conn, at.id, principal, session)
    return await add(conn, address, principal, session, private=True)


async def hand_over(conn: Connection, address: AddressId, principal: PrincipalId, session: SessionId) -> AddressRow:
    """From now on this address is this principal's, in this session; the caller holds it."""
    sql = """update addresses set principal_id = $2, session_id = $3,
               model = null, thinking = null, model_until = null, voice = null where id = $1 returning *"""
    return await fetch_one(conn, AddressRow, sql, address, principal, session)


async def choose(conn: Connection, chosen: AddressRow) -> None:
    """Keep the model, the thinking and the voice that were chosen for this chat."""
    sql = "update addresses set model = $2, thinking = $3, model_until = $4, voice = $5 where id = $1"
    await conn.execute(sql, chosen.id, chosen.model, chosen.thinking, chosen.model_until, chosen.voice)


async def move(conn: Connection, session: SessionId, successor: SessionId) -> None:
    """Move every address of a session to its successor; the caller holds their locks."""
    await conn.execute("update addresses set session_id = $2 where session_id = $1", session, successor)


async def lock_private(conn: Connection, principal: PrincipalId, channel: str) -> list[AddressRow]:
    """A person's private addresses on a channel, held."""
    sql = "select * from addresses where principal_id = $1 and channel = $2 and private order by id for no key update"
    return await fetch_all(conn, AddressRow, sql, principal, channel)


async def private_chats(conn: Connection, principal: PrincipalId) -> list[AddressRow]:
    """A person's private chats, the newest thread of each, the page last; the terminal and the APIs are no accounts."""
    sql = """select distinct on (channel = 'web', channel, account, chat) * from addresses
             where principal_id = $1 and private and channel not in ('api', 'terminal')
             order by channel = 'web', channel, account, chat, id desc"""
    return await fetch_all(conn, AddressRow, sql, principal)


async def last_spoken_at(conn: Connection, principal: PrincipalId, channel: str | None = None) -> AddressRow | None:
    """The address where this principal wrote last, on this channel or on any that allows unsolicited messages."""
    sql = """select a.* from addresses a
             cross join lateral (select id from inbox where address_id = a.id order by id desc limit 1) last
             where a.principal_id = $1 and a.channel <> 'api' and a.channel = coalesce($2, a.channel)
               and (a.channel <> 'terminal' or a.account = 'local')
             order by last.id desc limit 1"""
    return await fetch_first(conn, AddressRow, sql, principal, channel)


async def notification_address(
    conn: Connection,
    principal: PrincipalId,
    read: Collection[str],
    last_resort: str,
    *,
    asked: AddressId | None = None,
    channel: str | None = None,
    avoid: AddressId | None = None,
) -> AddressRow | None:
    """The address for a notification to this principal, never `avoid`: channels they `read` before the `last_resort`.

    The address that was `asked` for, else one on that `channel`, else a private one; of several, where they wrote last.
    """
    sql = """select a.* from addresses a
             left join lateral (select id from inbox where address_id = a.id order by id desc limit 1) last on true
             where a.principal_id = $1 and (a.channel = any($2) or a.channel = $3) and a.id is distinct from $6
               and (last.id is not null or a.id = $4) and (a.channel <> 'terminal' or a.account = 'local')
             order by a.channel = any($2) desc, (a.id = $4) is true desc, (a.channel = $5) is true desc, a.private desc,
                      last.id desc nulls last
             limit 1"""
    return await fetch_first(conn, AddressRow, sql, principal, list(read), last_resort, asked, channel, avoid)


async def channels(conn: Connection, principal: PrincipalId) -> list[str]:
    """The channels on which something can be said to this principal unasked."""
    sql = """select distinct channel from addresses
             where principal_id = $1 and channel <> 'api' and (channel <> 'terminal' or account = 'local')
             order by channel"""
    return [row["channel"] for row in await conn.fetch(sql, principal)]


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """The facts of one channel, as `gateway.domain.channels.channel` describes them."""

    database: Database
    channel: str

    async def load(self) -> Mapping[str, str]:
        """All of them, those that were saved longest ago first."""
        sql = "select name, value from channel_facts where channel = $1 order by saved_at, name"
        async with self.database.connection() as conn:
            return {row["name"]: row["value"] for row in await conn.fetch(sql, self.channel)}

    async def save(self, changes: Mapping[str, str | None]) -> None:
        """Store these, all or none; None removes one."""
        await self.database.run(lambda tx: self._save(tx, changes))

    async def _save(self, tx: Connection, changes: Mapping[str, str | None]) -> None:
        values = {name: value for name, value in changes.items() if value is not None}
        if gone := changes.keys() - values:
            sql = "delete from channel_facts where channel = $1 and name = any($2)"
            await tx.execute(sql, self.channel, list(gone))
        if values:
            sql = """insert into channel_facts (channel, name, value)
                     select $1, name, value from unnest($2::text[], $3::text[]) fact (name, value)
                     on conflict (channel, name) do update set value = excluded.value, saved_at = excluded.saved_at"""
            await tx.execute(sql, self.channel, list(values), list(values.values()))
