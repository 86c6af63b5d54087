"""Functions of a database that is not ours: one that its owner declared as a tool."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ssl import MemoryBIO, SSLContext, SSLObject, SSLSession

import asyncpg
from asyncpg import Record
from asyncpg.connect_utils import SessionAttribute

from gateway.domain.json import Json
from gateway.domain.text.texts import one_line
from gateway.net.errors import NetError

CALL_SECONDS, MAX_ROWS = 30.0, 1_000
_CONNECT_SECONDS = 10.0
_ARGUMENTS = """
    select p.oid, arg.name, format_type(arg.type, null) as type, type.typcategory = 'A' as is_array
    from pg_catalog.pg_proc p
      left join lateral unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargnames, p.proargmodes)
        as arg(type, name, mode) on coalesce(arg.mode, 'i') in ('i', 'b')
      left join pg_catalog.pg_type type on type.oid = arg.type
    where p.pronamespace = (select oid from pg_catalog.pg_namespace where nspname = $1)
      and p.proname = $2 and p.prokind = 'f'"""


class FunctionFailed(NetError):
    """A failed call, in words for the model; `foreign` if the words are the server's."""


@dataclass(frozen=True, slots=True)
class ForeignDatabase:
    """Only the `addresses` of its host are connected to; without `tls` nothing is encrypted."""

    host: str
    port: int
    addresses: list[str]
    user: str
    name: str
    password: str = field(repr=False)
    tls: SSLContext | None


class NamedContext(SSLContext):
    """Asks for the certificate of `name`, though the connection goes to an address."""

    name = ""

    def wrap_bio(
        self,
        incoming: MemoryBIO,
        outgoing: MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,  # noqa: ARG002
        session: SSLSession | None = None,
    ) -> SSLObject:
        """As `SSLContext` does."""
        return super().wrap_bio(incoming, outgoing, server_side, self.name, session)


async def call_function(
    database: ForeignDatabase, schema: str, function: str, arguments: Mapping[str, Json], *, reads: bool
) -> str:
    """Its first thousand rows, as JSON; raises `FunctionFailed`. What only `reads` runs in a read-only transaction."""
    with _explained(database):
        async with asyncio.timeout(CALL_SECONDS):
            connection = await _connected(database)
            try:
                async with connection.transaction(readonly=reads):
                    return await _called(connection, schema, function, arguments)
            finally:
                connection.terminate()


async def _connected(database: ForeignDatabase) -> asyncpg.Connection:
    """Connect without anything from the environment: no password, no client certificate."""
    return await asyncpg.connect(
        host=database.addresses,
        port=database.port,
        user=database.user,
        password=database.password,
        database=database.name,
        ssl=database.tls or False,
        timeout=_CONNECT_SECONDS,
        statement_cache_size=0,
        server_settings={"application_name": "supaclaw"},
        target_session_attrs=SessionAttribute.any,
    )


async def _called(connection: asyncpg.Connection, schema: str, function: str, arguments: Mapping[str, Json]) -> str:
    rows = await connection.fetch(_ARGUMENTS, schema, function)
    if len({row["oid"] for row in rows}) != 1:
        what = "several functions" if rows else "no function"
        raise FunctionFailed("unknown_function", f"There is {what} {schema}.{function} for this user in the database.")
    known = {row["name"]: row for row in rows}
    if unknown := sorted(arguments.keys() - known.keys()):
        raise FunctionFailed("invalid_arguments", f"{schema}.{function} has no argument {unknown[0][:80]!r}.")
    given = {name: value for name, value in arguments.items() if value is not None}
    slots = [_slot(number, known[name], value) for number, (name, value) in enumerate(given.items(), 1)]
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in given.values()]
    called = f"{_quoted(schema)}.{_quoted(function)}({', '.join(slots)})"
    # The names are quoted and the database's own; what a model gives is an argument.
    sql = f"select coalesce(jsonb_agg(to_jsonb(r)), '[]')::text from (select * from {called} limit {MAX_ROWS}) r"  # noqa: S608
    return str(await connection.fetchval(sql, *texts))


def _slot(number: int, row: Record, value: Json) -> str:
    """The argument by name; its text becomes a value of its type, as a literal would."""
    text = f"${number}::text"
    if row["is_array"] and isinstance(value, list | tuple):
        text = f"array(select jsonb_array_elements_text({text}::jsonb))"
    return f"{_quoted(str(row['name']))} => {text}::{row['type']}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _explained(database: ForeignDatabase) -> Iterator[None]:
    host = database.host
    try:
        yield
    except asyncpg.InvalidAuthorizationSpecificationError as error:
        raise FunctionFailed("refused", f"{host} refuses the user {database.user} or its password.") from error
    except asyncpg.PostgresError as error:
        told = one_line(str(error), 500)
        raise FunctionFailed(f"sql_{error.sqlstate}", f"{host} answers: {told}", foreign=True) from error
    except TimeoutError as error:
        raise FunctionFailed(
            "timeout", f"{host} took longer than {CALL_SECONDS:g} s; it may have had an effect."
        ) from error
    except (OSError, asyncpg.InterfaceError) as error:
        why = "has no certificate that can be verified" if "CERTIFICATE" in str(error) else "can't be reached"
        hint = "; put its authority's certificate beside the file and name it in config.ca" if "no cert" in why else ""
        raise FunctionFailed("unreachable", f"{host} {why} as a Postgres with TLS{hint}.") from error
