"""Wrong codes: whoever gives too many of them is not listened to for a while."""

from gateway.store.connection.pool import Connection

ALLOWED = 5
APPROVING = "pairing"
"""Whoever may let people in counts as one, wherever the codes are typed."""


async def locked(conn: Connection, who: str) -> bool:
    """Whether no code of theirs counts now; until the transaction ends nobody else guesses under this name."""
    await conn.execute("select pg_advisory_xact_lock(hashtextextended('supaclaw.guess ' || $1, 0))", who)
    sql = "select exists (select from guesses where who = $1 and wrong >= $2 and until > now())"
    return bool(await conn.fetchval(sql, who, ALLOWED))


async def wrong(conn: Connection, who: str) -> None:
    """One more; the last one allowed starts the ten minutes anew."""
    await conn.execute("delete from guesses where until <= now()")
    sql = """insert into guesses (who) values ($1) on conflict (who) do update set wrong = guesses.wrong + 1,
               until = case when guesses.wrong + 1 < $2 then guesses.until else now() + interval '10 minutes' end"""
    await conn.execute(sql, who, ALLOWED)
