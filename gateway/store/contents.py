"""How far contents are trusted, by their hash: wherever the bytes turn up again, the label is theirs."""

from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.store.pool import Connection


async def note(conn: Connection, principal: PrincipalId, sha256: str, label: Label, source: str) -> None:
    """Label a content before it is written; of two labels for the same bytes the more trusted stands."""
    await conn.execute(
        """insert into contents as c (principal_id, sha256, label, source) values ($1, $2, $3, $4)
           on conflict (principal_id, sha256) do update set label = excluded.label, source = excluded.source
           where excluded.label < c.label""",
        principal,
        sha256,
        label,
        source,
    )


async def label(conn: Connection, principal: PrincipalId, sha256: str) -> Label | None:
    """The label of a content; None if nobody has labelled it."""
    found = await conn.fetchval("select label from contents where principal_id = $1 and sha256 = $2", principal, sha256)
    return None if found is None else Label(found)
