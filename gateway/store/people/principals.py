"""Principals: the owner and the members."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import uuid4

from gateway.domain.ids import MessageId, PrincipalId
from gateway.domain.principals import Principal, Role
from gateway.domain.text.texts import one_line
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one, fetch_value
from gateway.store.files.files import NO_TRANSCRIPTION

NAME = 64
"""Characters of a name."""
_OWNER = "select id, role, name, identities, unconfirmed from principals where role = 'owner'"


@dataclass(frozen=True, slots=True)
class PrincipalRow:
    """A principal with the platform identities ('<channel>:<id>') it is known by; an owner may have some to confirm."""

    id: PrincipalId
    role: Role
    name: str
    identities: tuple[str, ...]
    unconfirmed: tuple[str, ...] = ()

    @property
    def principal(self) -> Principal:
        """Without its identities."""
        return Principal(self.id, self.role, self.name)


async def owner(conn: Connection) -> PrincipalRow | None:
    """The owner; None before the first start."""
    return await fetch_first(conn, PrincipalRow, _OWNER)


async def has_owner(conn: Connection) -> bool:
    """Whether the gateway was started before, on a schema of any age."""
    return bool(await conn.fetchval("select exists (select from principals where role = 'owner')"))


async def lock_owner(conn: Connection) -> PrincipalRow:
    """The owner, held until the transaction ends."""
    return await fetch_one(conn, PrincipalRow, f"{_OWNER} for no key update")


async def linked(conn: Connection) -> list[PrincipalRow]:
    """The members with several identities, by name."""
    sql = """select id, role, name, identities from principals
             where role = 'member' and cardinality(identities) > 1 order by name, id"""
    return await fetch_all(conn, PrincipalRow, sql)


async def everybody(conn: Connection) -> list[PrincipalId]:
    """The owner and all members."""
    return [row["id"] for row in await conn.fetch("select id from principals order by created_at, id")]


async def get(conn: Connection, principal: PrincipalId) -> Principal:
    """One principal, who must exist."""
    return await fetch_one(conn, Principal, "select id, role, name from principals where id = $1", principal)


async def names(conn: Connection, principals: Collection[PrincipalId]) -> dict[PrincipalId, str]:
    """The names of those of these principals that are members."""
    sql = "select id, name from principals where id = any($1::uuid[]) and role = 'member'"
    return {row["id"]: row["name"] for row in await conn.fetch(sql, list(principals))}


async def identities(conn: Connection, principal: PrincipalId) -> tuple[str, ...]:
    """How one principal is known."""
    return tuple(await conn.fetchval("select identities from principals where id = $1", principal) or ())


async def add(conn: Connection, role: Role, name: str, identities: Sequence[str]) -> PrincipalId:
    """A new principal; a second owner is refused by the schema."""
    identity = PrincipalId(uuid4())
    sql = "insert into principals (id, role, name, identities) values ($1, $2, $3, $4)"
    await conn.execute(sql, identity, role.value, name, list(identities))
    return identity


async def ensure_member(conn: Connection, name: str, identity: str) -> PrincipalId:
    """The member with this identity, made on first sight; two first sights at once make one member."""
    await _hold_identities(conn)
    known = await find(conn, identity)
    return known if known is not None else await add(conn, Role.MEMBER, one_line(name, NAME) or identity, [identity])


async def find(conn: Connection, identity: str) -> PrincipalId | None:
    """The principal with this identity."""
    return await fetch_value(conn, PrincipalId, "select id from principals where $1 = any(identities)", identity)


async def add_identity(conn: Connection, principal: PrincipalId, identity: str) -> bool:
    """One more account of a person; False if it is somebody's already."""
    await _hold_identities(conn)
    if await find(conn, identity) is not None:
        return False
    await conn.execute("update principals set identities = identities || $2::text where id = $1", principal, identity)
    return True


async def remove_identity(conn: Connection, principal: PrincipalId, identity: str) -> None:
    """One account less."""
    sql = "update principals set identities = array_remove(identities, $2) where id = $1"
    await conn.execute(sql, principal, identity)


async def update(conn: Connection, row: PrincipalRow) -> None:
    """Take over the name and the identities of a principal."""
    sql = "update principals set name = $2, identities = $3, unconfirmed = $4 where id = $1"
    await conn.execute(sql, row.id, row.name, list(row.identities), list(row.unconfirmed))


async def zone_offered(conn: Connection, principal: PrincipalId) -> bool:
    """Whether they were offered a time zone."""
    return bool(await conn.fetchval("select zone_offered_at is not null from principals where id = $1", principal))


async def settle_zone(conn: Connection, principal: PrincipalId) -> bool:
    """Offer no time zone from now on; False if that was settled before."""
    sql = """update principals set zone_offered_at = clock_timestamp()
             where id = $1 and zone_offered_at is null returning true"""
    return bool(await conn.fetchval(sql, principal))


async def explain_recordings(conn: Connection, principal: PrincipalId, message: MessageId) -> bool:
    """Note that they are told why nobody hears a recording of this message; False if all are, or they were told."""
    sql = """update principals set recordings_explained_at = clock_timestamp()
             where id = $1 and recordings_explained_at is null and exists (
               select from attachments a join files f on f.id = a.file_id
               where a.message_id = $2 and a.principal_id = $1 and f.problem = $3) returning true"""
    return bool(await conn.fetchval(sql, principal, message, NO_TRANSCRIPTION))


async def _hold_identities(conn: Connection) -> None:
    """Until the transaction ends nobody else gets one; what else is locked, is locked before, but for new addresses."""
    await conn.execute("select pg_advisory_xact_lock(hashtext('supaclaw.member'))")
