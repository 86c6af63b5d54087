"""What is known about the files of a principal; the bytes are in the workspace."""

from dataclasses import dataclass
from datetime import datetime

from gateway.domain.ids import FileId, PrincipalId
from gateway.domain.principals import Label
from gateway.store.pool import Connection


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file, by its path in its principal's root."""

    id: FileId
    principal_id: PrincipalId
    path: str
    mime: str
    size: int
    sha256: str
    label: Label
    origin: str
    description: str
    created_at: datetime
    updated_at: datetime
    text_path: str
    view_path: str
    pages: int
    problem: str
    derived_at: datetime | None


async def record(
    conn: Connection, principal: PrincipalId, path: str, *, size: int, mime: str, sha256: str, label: Label
) -> None:
    """Note that a file was written; its trust label never falls."""
    await conn.execute(
        """insert into files (principal_id, path, size, mime, sha256, label) values ($1, $2, $3, $4, $5, $6)
           on conflict (principal_id, path) do update set size = excluded.size, mime = excluded.mime,
             sha256 = excluded.sha256, label = greatest(files.label, excluded.label), updated_at = now()""",
        principal,
        path,
        size,
        mime,
        sha256,
        label,
    )


async def get(conn: Connection, principal: PrincipalId, path: str) -> FileRow | None:
    """What is known about one file."""
    row = await conn.fetchrow("select * from files where principal_id = $1 and path = $2", principal, path)
    return FileRow(**{**row, "label": Label(row["label"])}) if row else None
