"""Standing grants: a person's yes given in advance, to one exact call, for some time and some number of times."""

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gateway.domain.conversation.tools import ToolClass
from gateway.domain.ids import GrantId, PrincipalId
from gateway.domain.json import JsonObject
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one
from gateway.store.trust import audit
from gateway.store.trust.audit import Event


@dataclass(frozen=True, slots=True)
class GrantBound:
    """The one argument that may be any number from 0 to `at_most`; `total` bounds all of them together."""

    name: str
    at_most: Decimal
    total: Decimal | None = None


@dataclass(frozen=True, slots=True)
class GrantCall:
    """A call that needs the yes of `asked`."""

    principal: PrincipalId
    asked: PrincipalId
    tool: str
    act: ToolClass
    arguments: JsonObject
    base: str


@dataclass(frozen=True, slots=True)
class GrantTerms:
    """How often and until when; and which argument may differ, if one may."""

    times: int
    expires_at: datetime
    bound: GrantBound | None = None


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A grant as stored; people know it as `name`."""

    id: GrantId
    principal_id: PrincipalId
    tool: str
    act: ToolClass
    arguments: JsonObject
    base: str
    bounded: str | None
    at_most: Decimal | None
    times_left: int
    sum_left: Decimal | None
    expires_at: datetime
    created_at: datetime

    @property
    def name(self) -> str:
        """Such as G3."""
        return f"G{self.id}"


def number(text: str) -> GrantId | None:
    """The id in a name like G3; None if the text is none."""
    digits = text.strip().upper().removeprefix("G")
    return GrantId(int(digits)) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else None


async def give(tx: Connection, call: GrantCall, terms: GrantTerms, by: str) -> GrantRow:
    """Allow this call, and no other, on these terms."""
    bound = terms.bound
    fixed = {name: value for name, value in call.arguments.items() if bound is None or name != bound.name}
    sql = """insert into grants (principal_id, given_by, tool, act, arguments, base, bounded, at_most, times_left,
                                 sum_left, expires_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) returning *"""
    what = (call.principal, call.asked, call.tool, call.act, fixed, call.base)
    most = (bound.name, bound.at_most, terms.times, bound.total) if bound else (None, None, terms.times, None)
    given = await fetch_one(tx, GrantRow, sql, *what, *most, terms.expires_at)
    await audit.note(tx, Event.GRANTED, given.name, principal=call.principal, by=by, detail=call.tool)
    return given


async def take(tx: Connection, call: GrantCall, now: datetime) -> GrantId | None:
    """Use one up for this call, in the transaction that queues it; None if none allows it."""
    sql = """select * from grants where (principal_id, given_by, tool, act, base) = ($1, $2, $3, $4, $5)
               and revoked_at is null and times_left > 0 and expires_at > $6
             order by expires_at, id for update"""
    key = (call.principal, call.asked, call.tool, call.act, call.base)
    for grant in await fetch_all(tx, GrantRow, sql, *key, now):
        if (amount := covered(grant, call.arguments)) is not None:
            sql = "update grants set times_left = times_left - 1, sum_left = sum_left - $2 where id = $1"
            await tx.execute(sql, grant.id, amount)
            await audit.note(tx, Event.GRANT_USED, grant.name, principal=grant.principal_id)
            return grant.id
    return None


def covered(grant: GrantRow, arguments: JsonObject) -> Decimal | None:
    """The amount a call with these arguments takes from the grant's sum, 0 without one; None if it isn't covered."""
    rest = {name: value for name, value in arguments.items() if name != grant.bounded}
    if _exact(rest) != _exact(grant.arguments):
        return None
    if grant.bounded is None or grant.at_most is None:
        return Decimal(0)
    given = arguments.get(grant.bounded)
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    amount = Decimal(str(given))
    most = grant.at_most if grant.sum_left is None else min(grant.at_most, grant.sum_left)
    return amount if amount.is_finite() and 0 <= amount <= most else None


def _exact(arguments: JsonObject) -> str:
    return json.dumps(arguments, sort_keys=True)


async def live(conn: Connection, given_by: PrincipalId, now: datetime) -> list[GrantRow]:
    """This person's valid grants, the oldest first."""
    sql = """select * from grants where given_by = $1 and revoked_at is null and times_left > 0 and expires_at > $2
             order by id"""
    return await fetch_all(conn, GrantRow, sql, given_by, now)


async def revoke(tx: Connection, grant: GrantId, given_by: PrincipalId, now: datetime, by: str) -> GrantRow | None:
    """Take it back; None if this person has no such grant that still counts."""
    sql = "update grants set revoked_at = $3 where id = $1 and given_by = $2 and revoked_at is null returning *"
    revoked = await fetch_first(tx, GrantRow, sql, grant, given_by, now)
    if revoked is not None:
        await audit.note(tx, Event.GRANT_REVOKED, revoked.name, principal=revoked.principal_id, by=by)
    return revoked
