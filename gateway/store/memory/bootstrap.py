"""The memories that every new session begins with: the previous conversation, and the most important ones."""

from collections.abc import Collection
from datetime import datetime

from gateway.domain.ids import MessageId, PrincipalId, SessionId
from gateway.domain.memory.memories import DEFAULT_AGENT, Memory
from gateway.domain.principals import Label
from gateway.memory.wording import LastSession
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_record

ENOUGH = 100
"""Memories of each sort that are looked at."""

_LAST_CHAT = "select * from bootstrap_last($1, $2, $3, $4, $5, $6)"
_CANDIDATES = """
select * from remembered where id in (select bootstrap_rows($1, $2, $3, $4, $5, $6)) order by id"""
_VERSION = """
select bootstrap_version($1, $2, $3, $4, $5, $6, $7) as version, array(select other_versions($7, $8)) as others"""


async def last_chat(
    conn: Connection,
    principal: PrincipalId,
    session: SessionId | None,
    as_of: datetime,
    at_most: Label,
    agent: str = DEFAULT_AGENT,
) -> LastSession | None:
    """The newest that had ended by then, but this session, with its summary of then or its last three messages."""
    return await fetch_first(conn, LastSession, _LAST_CHAT, principal, as_of, at_most, agent, ENOUGH, session)


async def candidates(
    conn: Connection,
    principal: PrincipalId,
    as_of: datetime,
    tags: Collection[str],
    at_most: Label,
    agent: str = DEFAULT_AGENT,
) -> list[Memory]:
    """The important, the new, those that are pinned or preferences, and those with one of these tags or categories."""
    return await fetch_all(conn, Memory, _CANDIDATES, principal, as_of, at_most, agent, ENOUGH, _further(tags))


MAX_OTHER_VERSIONS = 1_000
"""The newest messages of other versions that are compared."""


async def version(
    conn: Connection,
    principal: PrincipalId,
    session: SessionId | None,
    as_of: datetime,
    tags: Collection[str],
    at_most: Label,
) -> tuple[str, frozenset[MessageId]]:
    """A digest of both, which differs once any of their rows was changed, forgotten or deleted.

    With it, the other versions of the messages of the session, if that is a branch.
    """
    asked = (principal, as_of, at_most, DEFAULT_AGENT, ENOUGH, _further(tags), session, MAX_OTHER_VERSIONS)
    row = await fetch_record(conn, _VERSION, *asked)
    return row["version"], frozenset(map(MessageId, row["others"]))


def _further(tags: Collection[str]) -> list[str]:
    """Those that are not looked for anyway."""
    return [tag for tag in tags if tag not in ("core", "preference")]
