"""Chunks: the passages of a principal's files, which go when the file goes or changes."""

from collections.abc import Sequence

from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.memory.lexemes import lexemes
from gateway.memory.passages import Passage
from gateway.store.connection.pool import Connection


async def known(conn: Connection, principal: PrincipalId) -> dict[str, str]:
    """The versions, by path, of the files that were looked at."""
    rows = await conn.fetch("select path, version from memory_files where principal_id = $1", principal)
    return {row["path"]: row["version"] for row in rows}


async def replace(
    tx: Connection, principal: PrincipalId, path: str, version: str, label: Label, found: Sequence[Passage]
) -> None:
    """Make these the passages of a file, trusted as it is."""
    await remove(tx, principal, path)
    sql = """insert into memory_files (principal_id, path, version) values ($1, $2, $3)
             on conflict (principal_id, path) do update set version = excluded.version"""
    await tx.execute(sql, principal, path, version)
    sql = """insert into memories (principal_id, kind, text, label, origin, path, page, place, lexemes)
             values ($1, 'chunk', $2, $3, 'file', $4, $5, $6, array_to_tsvector($7::text[]))"""
    await tx.executemany(
        sql,
        [
            (principal, storable(passage.text), label, path, passage.page, place, lexemes(passage.text))
            for place, passage in enumerate(found, 1)
        ],
    )


async def remove(tx: Connection, principal: PrincipalId, path: str) -> None:
    """The file is gone."""
    await tx.execute("delete from memories where principal_id = $1 and kind = 'chunk' and path = $2", principal, path)
    await tx.execute("delete from memory_files where principal_id = $1 and path = $2", principal, path)
