"""The rows as Python sees them against the tables as Postgres has them, and who may touch them."""

import dataclasses
import types
import typing
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Literal, get_args, get_origin
from uuid import UUID, uuid4

import asyncpg
import pytest

from gateway.store.connection.pool import Database
from gateway.store.connection.server import seen_from_the_web
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.inbox import InboxRow
from gateway.store.delivery.outbox import OutboxRow
from gateway.store.files.files import FileRow
from gateway.store.migrate import migrate
from gateway.store.people.pairings import PairingRow
from gateway.store.people.principals import PrincipalRow
from gateway.store.transcript.journals import JournalRow
from gateway.store.transcript.messages import MessageRow
from gateway.store.work.steps import StepRow
from tests.conftest import Server

WHOLE_ROWS: list[tuple[type, str]] = [
    (FileRow, "files"),
    (PairingRow, "pairings"),
    (StepRow, "task_steps"),
]
PARTIAL_ROWS: list[tuple[type, str]] = [
    (AddressRow, "addresses"),
    (InboxRow, "inbox"),
    (JournalRow, "journals"),
    (MessageRow, "messages"),
    (OutboxRow, "outbox"),
    (PrincipalRow, "principals"),
]
PYTHON_TYPES: dict[str, type] = {
    "uuid": UUID,
    "text": str,
    "int2": int,
    "int4": int,
    "int8": int,
    "bool": bool,
    "float8": float,
    "timestamptz": datetime,
    "_text": tuple,
    "_int8": tuple,
    "jsonb": tuple,
}


def plain(annotation: Any) -> type:
    """What is behind NewTypes, enums, literals and generic aliases."""
    if isinstance(annotation, typing.NewType):
        return plain(annotation.__supertype__)
    if get_origin(annotation) is Literal:
        [kind] = {type(value) for value in get_args(annotation)}
        return kind
    if (origin := get_origin(annotation)) is not None:
        return typing.cast(type, origin)
    if issubclass(annotation, Enum):
        return int if issubclass(annotation, int) else str
    return typing.cast(type, annotation)


def described(row: type) -> dict[str, tuple[type, bool]]:
    """Each field's plain type, and whether it may be None."""
    fields: dict[str, tuple[type, bool]] = {}
    columns = {field.name for field in dataclasses.fields(row) if field.default is dataclasses.MISSING}
    for name, annotation in typing.get_type_hints(row).items():
        if name not in columns:  # what has a default comes from elsewhere
            continue
        options = get_args(annotation) if get_origin(annotation) in (types.UnionType, typing.Union) else (annotation,)
        [kind] = [plain(option) for option in options if option is not types.NoneType]
        fields[name] = (kind, types.NoneType in options)
    return fields


async def columns(database: Database, table: str) -> dict[str, tuple[type, bool]]:
    async with database.connection() as conn:
        rows = await conn.fetch(
            """select column_name, udt_name, is_nullable = 'YES' as nullable from information_schema.columns
               where table_schema = 'supaclaw' and table_name = $1""",
            table,
        )
    return {row["column_name"]: (PYTHON_TYPES[row["udt_name"]], row["nullable"]) for row in rows}


@pytest.mark.parametrize(("row", "table"), WHOLE_ROWS)
async def test_a_row_has_exactly_the_columns_of_its_table(database: Database, row: type, table: str) -> None:
    assert described(row) == await columns(database, table)


@pytest.mark.parametrize(("row", "table"), PARTIAL_ROWS)
async def test_a_partial_row_has_only_columns_of_its_table(database: Database, row: type, table: str) -> None:
    assert described(row).items() <= (await columns(database, table)).items()


async def test_every_table_of_a_persons_data_says_whose_it_is(database: Database) -> None:
    async with database.connection() as conn:
        without = await conn.fetch(
            """select tablename from pg_tables t where schemaname = 'supaclaw' and not exists (
                 select from information_schema.columns c where c.table_schema = 'supaclaw'
                 and c.table_name = t.tablename and c.column_name = 'principal_id')"""
        )
    assert {row["tablename"] for row in without} == {
        "principals",
        "channel_facts",
        "guesses",
        "homes",
        "instances",
        "leases",
        "member_keys",
        "memory_models",
        "meta",
        "migrations",
        "model_refusals",
        "pins",
        "swept_objects",
        "table_sizes",
    }


async def names(database: Database, question: str) -> list[str]:
    async with database.connection() as conn:
        return [str(row[0]) for row in await conn.fetch(question)]


async def test_row_level_security_is_on_for_every_table_and_a_policy_opens_ones_own_rows_alone(
    database: Database,
) -> None:
    of_tables = "from pg_class where relnamespace = 'supaclaw'::regnamespace and relkind in ('r', 'p')"
    assert len(await names(database, f"select relname {of_tables}")) >= 12
    assert await names(database, f"select relname {of_tables} and not relrowsecurity") == []
    opened = """select tablename from pg_policies where schemaname = 'supaclaw' and roles = '{supaclaw_member}'
                and qual like '%SELECT member() %' order by 1"""
    personal = """select table_name from information_schema.columns join information_schema.tables
                    using (table_schema, table_name)
                  where table_schema = 'supaclaw' and table_type = 'BASE TABLE'
                  and (column_name = 'principal_id' or table_name = 'principals' and column_name = 'id') order by 1"""
    assert await names(database, opened) == await names(database, personal)
    assert await names(database, "select policyname from pg_policies where roles <> '{supaclaw_member}'") == []


async def test_what_a_member_writes_is_checked_for_all_that_it_refers_to(database: Database) -> None:
    unchecked = """select c.relname || '.' || a.attname
                   from pg_constraint k join pg_class c on c.oid = k.conrelid
                   join pg_attribute a on a.attrelid = c.oid and a.attnum = any(k.conkey)
                   left join pg_policy p on p.polrelid = c.oid
                   where c.relnamespace = 'supaclaw'::regnamespace and k.contype = 'f'
                     and k.confrelid <> 'principals'::regclass and cardinality(k.conkey) = 1  -- else whose it is counts
                     and has_any_column_privilege('supaclaw_member', c.oid, 'insert, update')
                     and coalesce(pg_get_expr(p.polwithcheck, c.oid), '') !~ ('\\m' || a.attname || ' (=|IS NULL)')
                   order by 1"""
    labelled = """select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'label'
                  join pg_policy p on p.polrelid = c.oid
                  where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r'
                    and has_any_column_privilege('supaclaw_member', c.oid, 'insert, update')
                    and coalesce(pg_get_expr(p.polwithcheck, c.oid), '') not like '%label >= 1%'"""
    assert await names(database, unchecked) == []
    assert await names(database, labelled) == []


async def test_nothing_is_granted_to_everybody(database: Database) -> None:
    to_public = "(select from aclexplode(coalesce({acl}, acldefault('{kind}', {owner}))) g where g.grantee = 0)"
    for table, name, of, kind, acl, owner in (
        ("pg_proc", "proname", "pronamespace = 'supaclaw'::regnamespace", "f", "proacl", "proowner"),
        ("pg_class", "relname", "relnamespace = 'supaclaw'::regnamespace", "r", "relacl", "relowner"),
        ("pg_namespace", "nspname", "nspname = 'supaclaw'", "n", "nspacl", "nspowner"),
    ):
        there = await names(database, f"select {name} from {table} where {of}")
        granted = to_public.format(acl=acl, kind=kind, owner=owner)
        assert there, f"{table} has something to check"
        assert await names(database, f"select {name} from {table} where {of} and exists {granted}") == []


async def test_the_owner_of_the_tables_is_no_superuser(database: Database) -> None:
    async with database.connection() as conn:
        role = await conn.fetchrow(
            "select rolsuper, rolbypassrls, rolcreaterole, rolreplication from pg_roles where rolname = current_user"
        )
        owners = await conn.fetch(
            "select distinct tableowner = current_user from pg_tables where schemaname = 'supaclaw'"
        )
    assert role is not None
    assert not any(role.values())
    assert [row[0] for row in owners] == [True]


@pytest.fixture
async def stranger(dsn: str, server: Server) -> AsyncIterator[asyncpg.Connection]:
    """A connection as a role that owns nothing."""
    role = f"stranger_{uuid4().hex}"
    connection = await asyncpg.connect(dsn)
    await server.maintain(f"create role {role}", f"grant {role} to supaclaw")
    try:
        await connection.execute(f"set role {role}")
        yield connection
    finally:
        await connection.execute(f"reset role; drop owned by {role}")
        await connection.close()
        await server.maintain(f"drop role {role}")


async def refused(connection: asyncpg.Connection, statements: Sequence[str]) -> list[str]:
    """Which of these the database did not refuse."""
    passed = []
    for statement in statements:
        try:
            await connection.execute(statement)
        except asyncpg.InsufficientPrivilegeError:
            continue
        passed.append(statement)
    return passed


async def test_another_role_can_read_and_run_nothing(stranger: asyncpg.Connection, database: Database) -> None:
    tables = await names(database, "select tablename from pg_tables where schemaname = 'supaclaw'")
    calls = await names(
        database,
        """select format('%I(%s)', proname, (
                         select string_agg(format('null::%I.%I', n.nspname, t.typname), ', ' order by place)
                         from unnest(proargtypes) with ordinality as a (type, place) join pg_type t on t.oid = type
                         join pg_namespace n on n.oid = t.typnamespace))
           from pg_proc where pronamespace = 'supaclaw'::regnamespace and prorettype <> 'trigger'::regtype""",
    )
    assert await refused(stranger, [f"select * from supaclaw.{table}" for table in tables]) == []
    assert await refused(stranger, [f"select supaclaw.{call}" for call in calls]) == []


async def test_not_even_with_a_foot_in_the_schema(stranger: asyncpg.Connection, database: Database) -> None:
    role = await stranger.fetchval("select current_user")
    async with database.connection() as conn:
        await conn.execute(f"grant usage on schema supaclaw to {role}; grant select on principals to {role}")
        await conn.execute("insert into principals (id, role, name) values (gen_random_uuid(), 'owner', 'Ada')")
    assert await stranger.fetch("select * from supaclaw.principals") == []
    assert await refused(stranger, ["select supaclaw.recover('1 s')", "select * from supaclaw.tasks"]) == []


WEB_ROLES = ("anon", "authenticated")
"""A hosted Postgres lets anybody on the web be one of them, and may grant them whatever is made from then on."""


@pytest.fixture
async def hosted(empty_dsn: str, server: Server) -> AsyncIterator[Database]:
    """A database without our schema in which the roles of the web may use all that will be there."""
    roles = ", ".join(WEB_ROLES)
    await server.maintain(*(f"create role {role}" for role in WEB_ROLES), f"grant {roles} to supaclaw")
    async with await Database.connect(empty_dsn) as database:
        async with database.connection() as conn:
            for things in ("functions", "tables", "sequences", "schemas"):
                await conn.execute(f"alter default privileges grant all on {things} to {roles}")
        yield database
        async with database.connection() as conn:
            await conn.execute(f"drop owned by {roles}")
    await server.maintain(f"drop role {roles}")


@pytest.mark.parametrize("role", WEB_ROLES)
async def test_a_role_of_the_web_can_read_and_run_nothing(hosted: Database, role: str) -> None:
    await migrate(hosted)
    functions = "select oid::regprocedure from pg_proc where pronamespace = 'supaclaw'::regnamespace"
    tables = "select relname from pg_class where relnamespace = 'supaclaw'::regnamespace and relkind in ('r', 'p', 'v')"
    assert len(await names(hosted, functions)) >= 12
    assert await names(hosted, f"{functions} and has_function_privilege('{role}', oid, 'execute')") == []
    assert await names(hosted, f"{tables} and has_any_column_privilege('{role}', oid, 'select, insert, update')") == []
    assert await names(hosted, f"{tables} and has_table_privilege('{role}', oid, 'delete, truncate')") == []
    async with hosted.connection() as conn:
        assert await seen_from_the_web(conn) == []


@pytest.mark.parametrize(("row", "table"), WHOLE_ROWS + PARTIAL_ROWS)
def test_a_row_does_not_change(row: type, table: str) -> None:
    [first, *_] = dataclasses.fields(row)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(object.__new__(row), first.name, table)
