"""The extension `vector`, and the table it is needed for; everything else works without."""

from asyncpg.exceptions import PostgresError

from gateway.store.connection.pool import Connection

OLDEST = (0, 8)
MISSING = (
    "the database server has no pgvector, so memory is searched by words only: install its extension `vector` there"
)
NOT_MADE = "memory is searched by words only: let an administrator run once in this database: create extension vector"
TOO_OLD = (
    "pgvector {version} is too old for searching memory by meaning: install 0.8 or newer, then run: "
    "alter extension vector update"
)

_STATE = """
select (select extversion from pg_extension where extname = 'vector') as version,
       exists (select from pg_available_extensions where name = 'vector') as available,
       exists (select from pg_attribute where attrelid = to_regclass('supaclaw.memory_vectors')
               and attname = 'embedding' and not attisdropped) as ready
"""

_TABLE = """
drop table if exists memory_vectors;
delete from memory_models;
create table memory_vectors (
  memory_id bigint not null references memories on delete cascade,
  principal_id uuid not null references principals,
  model smallint not null references memory_models,
  embedding halfvec not null,
  primary key (memory_id, model)
);
create index memory_vectors_by_owner on memory_vectors (model, principal_id, memory_id);
comment on table memory_vectors is 'derived: left out of backups';
alter table memory_vectors enable row level security;
create policy own on memory_vectors to supaclaw_member using (principal_id = (select member()));
grant select on memory_vectors to supaclaw_member;
"""


async def problem(conn: Connection) -> str:
    """Why there can be no vectors, and what to do, in one line; "" if there can. Changes nothing."""
    state = await conn.fetchrow(_STATE)
    assert state is not None, "it has no condition"
    if state["version"] is None:
        return NOT_MADE if state["available"] else MISSING
    if tuple(map(int, state["version"].split(".")[:2])) < OLDEST:
        return TOO_OLD.format(version=state["version"])
    return ""


async def ensure(tx: Connection) -> str:
    """Make the table for vectors if that can be; returns the `problem` if not."""
    state = await tx.fetchrow(_STATE)
    assert state is not None, "it has no condition"
    if state["ready"]:
        return ""
    if state["version"] is None and state["available"]:
        await _create(tx)
    if why := await problem(tx):
        return why
    await tx.execute("select pg_advisory_xact_lock(hashtextextended('memory_vectors', 0))")
    state = await tx.fetchrow(_STATE)
    if state is not None and not state["ready"]:  # else another process made it while we waited
        await tx.execute(_TABLE)
        # Of a role that Supabase lets in from the web.
        for role in await tx.fetch("select rolname from pg_roles where rolname in ('anon', 'authenticated')"):
            await tx.execute(f'revoke all on memory_vectors from "{role["rolname"]}"')
    return ""


async def _create(tx: Connection) -> None:
    """Where extensions are kept, not in our schema; who may not do it is told by `problem`."""
    try:
        async with tx.transaction():
            kept = await tx.fetchval("select to_regnamespace('extensions') is not null")
            await tx.execute(f"create extension if not exists vector schema {'extensions' if kept else 'public'}")
    except PostgresError:
        return
