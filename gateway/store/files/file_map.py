"""Which content each synchronised path has, on every machine: compared and set here, whatever the object store can do.

An object is in the store before a row names it. Objects that no row names are listed as swept before they are deleted,
so that no row gets one that was stored before it was deleted.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TypeAlias

from gateway.domain.files import FileContent, SharedFile
from gateway.domain.ids import PrincipalId
from gateway.store.connection.pool import Connection

_SWEEPING = 7_232_011
"""The advisory lock between a row that is set and a sweep that begins."""


Version: TypeAlias = tuple[int, int]
"""Of a map, its rows and their changes: another one if any row has changed."""


async def version(conn: Connection, principal: PrincipalId, place: str) -> tuple[Version, datetime]:
    """And what time it is there."""
    sql = """select count(*) as rows, coalesce(sum(version), 0)::bigint as changes, clock_timestamp() as at
             from synced_files where principal_id = $1 and place = $2"""
    [row] = await conn.fetch(sql, principal, place)
    return (row["rows"], row["changes"]), row["at"]


async def rows(conn: Connection, principal: PrincipalId, place: str) -> Mapping[str, SharedFile]:
    """The whole map of a person's files, by path."""
    sql = """select path, sha256, size, executable, version from synced_files
             where principal_id = $1 and place = $2"""
    return {
        row["path"]: SharedFile(
            None if row["sha256"] is None else FileContent(row["sha256"], row["size"], row["executable"]),
            row["version"],
        )
        for row in await conn.fetch(sql, principal, place)
    }


async def compare_and_set(
    tx: Connection,
    principal: PrincipalId,
    place: str,
    path: str,
    version: int,
    content: FileContent | None,
    stored_after: datetime,
) -> bool:
    """Give the path this content, None if it was deleted; False if its row is not of this version any more.

    A version of 0 is that of a path without a row. False also if the object, which was stored after this time, may
    have been swept since: store it again.
    """
    await tx.execute("select pg_advisory_xact_lock_shared($1)", _SWEEPING)
    swept = """select exists (select from swept_objects
                where place = $1 and sha256 = $2 and coalesce(gone_at, 'infinity') >= $3)"""
    if content and await tx.fetchval(swept, place, content.sha256, stored_after):
        return False
    values = (content.sha256, content.size, content.executable) if content else (None, 0, False)
    sql = """insert into synced_files (principal_id, place, path, sha256, size, executable)
             values ($1, $2, $3, $4, $5, $6) on conflict do nothing"""
    if version:
        sql = """update synced_files set sha256 = $4, size = $5, executable = $6, version = version + 1,
                   changed_at = now()
                 where principal_id = $1 and place = $2 and path = $3 and version = $7"""
    done = await tx.execute(sql, principal, place, path, *values, *((version,) if version else ()))
    return done.endswith(" 1")


async def people(conn: Connection, place: str, here: Collection[PrincipalId]) -> list[PrincipalId]:
    """Principals whose files are in the map, and those of `here` who exist."""
    sql = """select id from principals p where id = any($2::uuid[])
               or exists (select from synced_files where principal_id = p.id and place = $1) order by created_at, id"""
    return [PrincipalId(row["id"]) for row in await conn.fetch(sql, place, list(here))]


async def begin_sweep(tx: Connection, place: str, found: Collection[str]) -> list[str]:
    """List as swept those of the found objects that no row names, and those that a sweep before has left."""
    await tx.execute("select pg_advisory_xact_lock($1)", _SWEEPING)
    sql = """insert into swept_objects (place, sha256)
             select $1, each from unnest($2::text[]) each
             where not exists (select from synced_files where place = $1 and sha256 = each)
             on conflict (place, sha256) do update set gone_at = null"""
    await tx.execute(sql, place, sorted(found))
    listed = await tx.fetch("select sha256 from swept_objects where place = $1 and gone_at is null", place)
    return [row["sha256"] for row in listed]


async def end_sweep(tx: Connection, place: str, gone: Collection[str]) -> None:
    """They are deleted: a row may name them again once they are stored again. Old names of deleted files go, too."""
    sql = "update swept_objects set gone_at = clock_timestamp() where place = $1 and sha256 = any($2::text[])"
    await tx.execute(sql, place, sorted(gone))
    await tx.execute("delete from swept_objects where gone_at < now() - interval '1 day'")
    await tx.execute("delete from synced_files where sha256 is null and changed_at < now() - interval '90 days'")
