"""Database addresses, and pools of connections to them: direct servers and transaction poolers."""

import json
import logging
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from gateway.domain.errors import OwnerMustAct

_HINTS = {"pgbouncer", "pool_mode", "member_password"}
_OF_OTHER_CLIENTS = """
    application_name channel_binding client_encoding connect_timeout fallback_application_name gssencmode
    keepalives keepalives_count keepalives_idle keepalives_interval load_balance_hosts max_protocol_version
    min_protocol_version require_auth requirepeer sslcompression sslsni tcp_user_timeout
    connection_limit max_idle_connection_lifetime pool_timeout schema single_use_connections socket_timeout
    sslaccept sslidentity statement_cache_size supa uselibpqcompat workaround
"""
"""Options of libpq, Prisma and node-postgres in addresses that hosts offer to copy. We set our own limits, schema and
encoding; anything else that we do not know goes to the server as a setting."""

UNREADABLE = "The database URL cannot be read; write postgresql://user:password@host:5432/name"
_NOT_ENCODED = "The database URL is ambiguous: within a password write @ as %40, / as %2F, ? as %3F, # as %23"


@dataclass(frozen=True, slots=True)
class Dsn:
    """An address as asyncpg takes it. Not `direct` means: no session state, no prepared statements, no LISTEN."""

    url: str = field(repr=False)
    direct: bool
    member_password: str | None = field(default=None, repr=False)


def parse_dsn(text: str) -> Dsn:
    """Read an address; `?pool_mode=session|transaction` overrules the guess from port 6543 or a host named pooler."""
    try:
        parts = urlsplit(text.strip())
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise OwnerMustAct(UNREADABLE) from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise OwnerMustAct("The database URL must start with postgresql://")
    if parts.netloc.count("@") > 1 or "@" in parts.path + parts.query + parts.fragment:
        raise OwnerMustAct(_NOT_ENCODED)
    dropped = _HINTS.union(_OF_OTHER_CLIENTS.split())
    kept = urlencode([(name, value) for name, value in options if value and name not in dropped])
    url = text.strip().partition("?")[0].partition("#")[0] + (f"?{kept}" if kept else "")
    return Dsn(url, not _pooled(parts, dict(options)), dict(options).get("member_password") or None)


def as_user(dsn: Dsn, name: str, password: str) -> Dsn:
    """The same database for another role; poolers that serve many projects name one behind a dot in the user."""
    parts = urlsplit(dsn.url)
    options = dict(parse_qsl(parts.query))
    login, _, hosts = parts.netloc.rpartition("@")
    _, dot, project = (options.get("user") or login.partition(":")[0]).partition(".")
    kept = urlencode({name: value for name, value in options.items() if name not in {"user", "password"}})
    netloc = f"{name}{dot}{project}:{quote(password, safe='')}@{hosts}"
    return Dsn(parts._replace(netloc=netloc, query=kept).geturl(), dsn.direct)


def _pooled(parts: SplitResult, options: dict[str, str]) -> bool:
    if (mode := options.get("pool_mode")) is not None:
        return mode == "transaction"
    if (flag := options.get("pgbouncer")) is not None:
        return flag == "true"
    hosts = [*parts.netloc.rpartition("@")[2].split(","), options.get("host", "")]
    ports = [*(host.rpartition(":")[2] for host in hosts), options.get("port")]
    return "6543" in ports or any("pooler" in host or "pgbouncer" in host for host in hosts)


SEARCH_PATH = "supaclaw, public, extensions"
ANSWER_SECONDS = 30.0
REST_SECONDS = 15.0
"""How long a connection stays open unused; at rest each costs the server 2 to 15 MB."""
_TRANSACTION_LIMIT = "set {scope} transaction_timeout to '2min'"
"""Ends the transaction of a frozen or vanished client, and with it its locks. Postgres 17 and newer."""


async def open_pool(target: Dsn, size: int, *, cleared: bool = False) -> asyncpg.Pool:
    """Connections; with `cleared`, nothing is left on them of their last use, be it settings or temporary tables."""
    server_settings = {"application_name": "supaclaw"}
    if target.direct:
        server_settings["search_path"] = SEARCH_PATH
    # The pool logs a traceback for each connection it cannot open in advance; code that needs one reports it better.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
    return await asyncpg.create_pool(
        target.url,
        min_size=1,
        max_size=size,
        max_inactive_connection_lifetime=REST_SECONDS,
        timeout=ANSWER_SECONDS,
        command_timeout=ANSWER_SECONDS,
        statement_cache_size=100 if target.direct and not cleared else 0,
        server_settings=server_settings,
        init=_set_up if target.direct else _use_json,
        reset=_clear if target.direct and cleared else _leave_as_it_is,
    )


def transaction_settings(connection: PoolConnectionProxy) -> str:
    """Statement that sets, for one transaction, what a pooler doesn't keep for a session."""
    limit = f"; {_TRANSACTION_LIMIT.format(scope='local')}" if ends_transactions(connection) else ""
    return f"set local search_path to {SEARCH_PATH}{limit}"


def ends_transactions(connection: PoolConnectionProxy | asyncpg.Connection) -> bool:
    """Whether the server limits their time."""
    return connection.get_server_version().major >= 17


async def _use_json(connection: asyncpg.Connection) -> None:
    encoding = getattr(connection.get_settings(), "server_encoding", "UTF8")  # a pooler may keep it to itself
    if encoding != "UTF8":
        raise OwnerMustAct(
            f"The database is encoded in {encoding}, which cannot hold every message: name one in the database URL "
            "that was made with `create database … encoding 'UTF8' template template0`"
        )
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)


async def _set_up(connection: asyncpg.Connection) -> None:
    await _use_json(connection)
    await _limit(connection)


async def _clear(connection: asyncpg.Connection) -> None:
    await connection.execute("discard all")
    await _limit(connection)


async def _limit(connection: asyncpg.Connection) -> None:
    if ends_transactions(connection):
        await connection.execute(_TRANSACTION_LIMIT.format(scope="session"))


async def _leave_as_it_is(connection: asyncpg.Connection) -> None:
    """Spare a round trip per use: nothing here leaves session state, and asyncpg rolls back by itself."""
