"""Facts about the files of a principal; the bytes are in the workspace."""

from dataclasses import dataclass
from datetime import datetime

from gateway.domain.conversation.inbound import Attachment
from gateway.domain.ids import FileId, PrincipalId
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.domain.work.tasks import Claim
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one, read_row

OWN = "agent"
"""The origin of a file that nobody has sent: the person or the agent put it into the workspace."""
NO_SPEECH = "no speech was found in it"
"""The problem of a recording that was transcribed, and has no words."""
NO_TRANSCRIPTION = "it isn't transcribed: no model is configured for that"
"""The problem of one that is transcribed as soon as that is changed."""


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

    @property
    def name(self) -> str:
        """Its name for people."""
        return self.path.rpartition("/")[2]

    @property
    def locked(self) -> bool:
        """Whether it, or a file in it, isn't read without a password."""
        return "password-protected" in self.problem

    @property
    def beside(self) -> str:
        """The path of what is read out of it, without suffix: a person's own folders get no such files."""
        return self.path if self.origin != OWN else f"uploads/read/{self.sha256[:16]}/{self.name[-60:]}"

    @property
    def announced(self) -> Attachment:
        """As a channel would announce it, although it is here already."""
        return Attachment(str(self.id), self.name, self.mime, self.size)


async def get(conn: Connection, principal: PrincipalId, path: str) -> FileRow | None:
    """The file at this path; None if it is not stored."""
    sql = "select * from files where principal_id = $1 and path = $2"
    return await fetch_first(conn, FileRow, sql, principal, path)


async def locked_named(conn: Connection, principal: PrincipalId, name: str) -> FileRow | None:
    """The newest file of this path or name that isn't read without a password."""
    sql = """select * from files where principal_id = $1 and problem like '%password-protected%'
               and (path = $2 or right(path, length($2) + 1) = '/' || $2) order by updated_at desc limit 1"""
    return await fetch_first(conn, FileRow, sql, principal, name)


async def by_id(conn: Connection, principal: PrincipalId, file: FileId) -> FileRow | None:
    """The file of this id, if it is this principal's."""
    return await fetch_first(conn, FileRow, "select * from files where principal_id = $1 and id = $2", principal, file)


async def of_task(conn: Connection, run: Claim) -> FileRow | None:
    """The file that the task of this run is about, if it is its principal's."""
    sql = """select f.* from tasks t join files f on f.id = (t.input ->> 'file')::uuid
             where t.id = $1 and f.principal_id = t.principal_id"""
    return await fetch_first(conn, FileRow, sql, run.id)


async def recent(conn: Connection, principal: PrincipalId, limit: int) -> list[FileRow]:
    """A principal's files, the last written first, with the labels that their contents have by now."""
    sql = """select f.*, coalesce(c.label, f.label) as known
             from files f left join contents c using (principal_id, sha256)
             where principal_id = $1 order by f.updated_at desc, path limit $2"""
    return [read_row(FileRow, {**row, "label": row["known"]}) for row in await conn.fetch(sql, principal, limit)]


async def names_label(conn: Connection, principal: PrincipalId, folder: str) -> Label:
    """The highest label of the names in a folder; each is trusted like the most trusted file that has it.

    Folders that the gateway names itself do not count.
    """
    sql = """select coalesce(max(label), 0) from (
               select split_part(substr(path, length($2) + 1), '/', 1) as name,
                      min(coalesce(c.label, f.label)) as label
               from files f left join contents c using (principal_id, sha256)
               where principal_id = $1 and starts_with(path, $2) group by 1) each
             where name not in ('uploads', 'answers')"""
    return Label(await conn.fetchval(sql, principal, folder))


async def same(conn: Connection, principal: PrincipalId, sha256: str, folder: str) -> list[FileRow]:
    """The principal's files of this content below a folder, the oldest first."""
    sql = """select * from files where principal_id = $1 and sha256 = $2 and starts_with(path, $3 || '/')
             order by created_at, path"""
    return await fetch_all(conn, FileRow, sql, principal, sha256, folder)


async def keep(
    conn: Connection, principal: PrincipalId, path: str, *, size: int, mime: str, sha256: str, label: Label, origin: str
) -> FileRow:
    """Note a file as it is now; another content than before is yet to be read, and a known file keeps its origin.

    `label` is that of the content, as in `contents`.
    """
    sql = """insert into files as f (principal_id, path, size, mime, sha256, label, origin)
             values ($1, $2, $3, $4, $5, $6, $7)
             on conflict (principal_id, path) do update set size = excluded.size, mime = excluded.mime,
               sha256 = excluded.sha256, label = excluded.label,
               derived_at = case when f.sha256 = excluded.sha256 then f.derived_at end, updated_at = now()
             returning *"""
    return await fetch_one(conn, FileRow, sql, principal, path, size, mime, sha256, label, origin)


async def derived(
    conn: Connection,
    file: FileId,
    *,
    mime: str = "",
    text_path: str = "",
    view_path: str = "",
    pages: int = 0,
    description: str = "",
    problem: str = "",
) -> None:
    """Note what was read out of a file; without a `mime` the claimed one stays."""
    sql = """update files set mime = coalesce(nullif($2, ''), mime), text_path = $3, view_path = $4, pages = $5,
               description = $6, problem = $7, derived_at = now(), updated_at = now() where id = $1"""
    await conn.execute(sql, file, storable(mime), text_path, view_path, pages, storable(description), storable(problem))


async def reread(conn: Connection, *ids: FileId) -> None:
    """A recording without a text is read again, unless nobody speaks in it: what kept it unread may have passed."""
    sql = """update files set derived_at = null
             where id = any($1) and text_path = '' and problem <> $2 and (mime like 'audio/%' or mime like 'video/%')"""
    await conn.execute(sql, ids, NO_SPEECH)


async def describe(conn: Connection, file: FileId, description: str) -> None:
    """Another line about what is in it."""
    await conn.execute("update files set description = $2 where id = $1", file, storable(description))
