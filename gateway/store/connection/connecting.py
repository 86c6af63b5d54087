"""Opening pools of connections, as direct servers and transaction poolers need them."""

import json
import logging

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from gateway.domain.errors import OwnerMustAct
from gateway.store.connection.dsn import Dsn

SEARCH_PATH = "supaclaw, public, extensions"
ANSWER_WITHIN = 30.0
_AT_MOST = "set {scope} transaction_timeout to '2min'"
"""Whoever is frozen in a transaction, or is gone without a word, holds its locks no longer. Postgres from 17 on."""


async def open_pool(target: Dsn, size: int, *, cleared: bool = False) -> asyncpg.Pool:
    """Connections; with `cleared`, nothing is left on them of their last use, be it settings or temporary tables."""
    server_settings = {"application_name": "supaclaw"}
    if target.direct:
        server_settings["search_path"] = SEARCH_PATH
    # It tells of each connection it cannot make in advance, with a traceback; whoever needs one tells better.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
    return await asyncpg.create_pool(
        target.url,
        min_size=1,
        max_size=size,
        max_inactive_connection_lifetime=60.0,
        timeout=ANSWER_WITHIN,
        command_timeout=ANSWER_WITHIN,
        statement_cache_size=100 if target.direct and not cleared else 0,
        server_settings=server_settings,
        init=_set_up if target.direct else _speak_json,
        reset=_clear if target.direct and cleared else _leave_as_it_is,
    )


def settings(connection: PoolConnectionProxy) -> str:
    """What behind a pooler holds for one transaction only."""
    limit = f"; {_AT_MOST.format(scope='local')}" if ends_transactions(connection) else ""
    return f"set local search_path to {SEARCH_PATH}{limit}"


def ends_transactions(connection: PoolConnectionProxy | asyncpg.Connection) -> bool:
    """Whether the server limits their time."""
    return connection.get_server_version().major >= 17


async def _speak_json(connection: asyncpg.Connection) -> None:
    encoding = getattr(connection.get_settings(), "server_encoding", "UTF8")  # a pooler may keep it to itself
    if encoding != "UTF8":
        raise OwnerMustAct(
            f"The database is encoded in {encoding}, which cannot hold every message: name one in the database URL "
            "that was made with `create database … encoding 'UTF8' template template0`"
        )
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)


async def _set_up(connection: asyncpg.Connection) -> None:
    await _speak_json(connection)
    await _limit(connection)


async def _clear(connection: asyncpg.Connection) -> None:
    await connection.execute("discard all")
    await _limit(connection)


async def _limit(connection: asyncpg.Connection) -> None:
    if ends_transactions(connection):
        await connection.execute(_AT_MOST.format(scope="session"))


async def _leave_as_it_is(connection: asyncpg.Connection) -> None:
    """Spare a round trip per use: nothing here leaves session state, and asyncpg rolls back by itself."""
