"""How far contents are trusted, by their hash: wherever the bytes turn up again, the label is theirs."""

from collections.abc import Iterable, Mapping

from gateway.domain.ids import InstanceId, PrincipalId
from gateway.domain.principals import Label
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_value


async def note(conn: Connection, principal: PrincipalId, sha256: str, label: Label, source: str) -> None:
    """Label a content before it is written; of two labels for the same bytes the more trusted stands."""
    sql = """insert into contents as c (principal_id, sha256, label, source) values ($1, $2, $3, $4)
             on conflict (principal_id, sha256) do update set label = excluded.label, source = excluded.source
             where excluded.label < c.label"""
    await conn.execute(sql, principal, sha256, label, source)


async def label(conn: Connection, principal: PrincipalId, sha256: str) -> Label | None:
    """The label of a content; None if nobody has labelled it, and its writer may be told from where it lies.

    While there are files older than labels, or commands that others may have caused, what has none is untrusted.
    """
    sql = """select coalesce(
               (select label from contents where principal_id = $1 and sha256 = $2),
               (select label from contents where principal_id = $1 and sha256 = 'before'),
               (select $3::smallint from running_commands where principal_id = $1 limit 1))"""
    return await fetch_value(conn, Label, sql, principal, sha256, Label.UNTRUSTED)


async def unlabelled(conn: Connection, principal: PrincipalId, hashes: Iterable[str]) -> tuple[set[str], bool]:
    """Those of them that nobody has labelled, and whether it is open at the moment whose words such contents are."""
    sql = """select each,
               exists (select from contents where principal_id = $1 and sha256 = 'before')
               or exists (select from running_commands where principal_id = $1) as open
             from unnest($2::text[]) each
             where not exists (select from contents where principal_id = $1 and sha256 = each)"""
    rows = await conn.fetch(sql, principal, sorted(set(hashes)))
    return {row["each"] for row in rows}, any(row["open"] for row in rows)


async def add(conn: Connection, principal: PrincipalId, contents: Iterable[str], label: Label, source: str) -> set[str]:
    """Label those contents that nobody has labelled; returns them."""
    sql = """insert into contents (principal_id, sha256, label, source)
             select $1, each, $3, $4 from unnest($2::text[]) each on conflict do nothing returning sha256"""
    return {row["sha256"] for row in await conn.fetch(sql, principal, sorted(set(contents)), label, source)}


async def expect_older(conn: Connection, principal: PrincipalId | None = None) -> None:
    """A workspace, or each one, may get files without labels; until `listed_older` what is unknown is untrusted."""
    sql = """insert into contents (principal_id, sha256, label, source)
             select id, 'before', $1, 'before' from principals where $2::uuid is null or id = $2
             on conflict do nothing"""
    await conn.execute(sql, Label.UNTRUSTED, principal)


async def with_older(conn: Connection) -> list[PrincipalId]:
    """Principals whose workspaces have yet to be listed."""
    return [row["principal_id"] for row in await conn.fetch("select * from contents where sha256 = 'before'")]


async def listed_older(conn: Connection, principal: PrincipalId) -> None:
    """Record that all contents of the workspace have labels now."""
    await conn.execute("delete from contents where principal_id = $1 and sha256 = 'before'", principal)


async def less_trusted(
    conn: Connection, principal: PrincipalId, hashes: Iterable[str], own: Label
) -> Mapping[str, Label]:
    """The labels of those contents that are known to be trusted less than `own`."""
    sql = "select sha256, label from contents where principal_id = $1 and label > $2 and sha256 = any($3::text[])"
    rows = await conn.fetch(sql, principal, own, sorted(set(hashes)))
    return {row["sha256"]: Label(row["label"]) for row in rows}


async def note_change(conn: Connection, principal: PrincipalId) -> None:
    """Note that something trusted less than this person has changed their files: a new value of `last_change`."""
    sql = """insert into contents (principal_id, sha256, label, source) values ($1, 'changed', $2, gen_random_uuid())
             on conflict (principal_id, sha256) do update set source = excluded.source"""
    await conn.execute(sql, principal, Label.UNTRUSTED)


async def last_change(conn: Connection, principal: PrincipalId, instance: InstanceId | None) -> tuple[str, bool]:
    """A value that each `note_change` replaces, and whether commands of other processes may change files unnoted.

    Without an `instance` those of this one count, too, which a kill has cut off.
    """
    sql = """select coalesce((select source from contents where principal_id = $1 and sha256 = 'changed'), '') as value,
               exists (select from running_commands
                       where principal_id = $1 and instance_id is distinct from $2) as elsewhere"""
    [row] = await conn.fetch(sql, principal, instance)
    return row["value"], row["elsewhere"]


async def begin_command(conn: Connection, principal: PrincipalId, instance: InstanceId) -> None:
    """Note that a command may write untrusted content; until `end_commands`, content without a label is untrusted."""
    await conn.execute("insert into running_commands values ($1, $2) on conflict do nothing", principal, instance)


async def end_commands(conn: Connection, principal: PrincipalId, instance: InstanceId) -> None:
    """Note that the contents written by this process's commands have labels now."""
    await conn.execute("delete from running_commands where principal_id = $1 and instance_id = $2", principal, instance)


async def commands_interrupted(conn: Connection, instance: InstanceId) -> None:
    """Have workspaces listed in which commands of this process's predecessor, or of a dead process, were cut off."""
    sql = """with gone as (delete from running_commands r where instance_id = $1 or not exists (
               select from leases where name = concat('instance ', r.instance_id) and expires_at > now())
               returning principal_id)
             insert into contents as c (principal_id, sha256, label, source)
             select distinct on (principal_id, mark) principal_id, mark, $2::smallint, source
             from gone, (values ('before', 'before'), ('changed', gen_random_uuid()::text)) marks (mark, source)
             on conflict (principal_id, sha256) do update set source = excluded.source where c.sha256 = 'changed'"""
    await conn.execute(sql, instance, Label.UNTRUSTED)
