"""`supaclaw deploy supabase`, against the embedded Postgres with roles that stand in for Supabase's."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.cli.conftest import Supaclaw
from tests.conftest import Server


def ask(dsn: str, statement: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


@pytest.fixture
def web_roles(server: Server) -> Iterator[None]:
    """Supabase's, for as long as a test takes; ask for them before the database, which is dropped first then."""
    asyncio.run(server.maintain("create role anon nologin", "create role authenticated nologin"))
    yield
    asyncio.run(server.maintain("drop role anon, authenticated"))


def test_a_good_database_passes_every_step(supaclaw: Supaclaw, web_roles: None, dsn: str) -> None:
    done = supaclaw("deploy", "supabase", "--direct", dsn, "--pooler", f"{dsn}&pool_mode=transaction")
    assert "FAIL" not in done.out, done.out
    assert (done.code, done.out.count("ok ")) == (0, 6)


def test_an_empty_one_is_told_to_migrate_and_does(supaclaw: Supaclaw, empty_dsn: str) -> None:
    told = supaclaw("deploy", "supabase", "--direct", empty_dsn)
    assert told.code == 1
    assert "run again with --migrate" in told.out
    assert "ok   migrations" in supaclaw("deploy", "supabase", "--direct", empty_dsn, "--migrate").out


@pytest.mark.parametrize(
    ("grant", "told"),
    [
        ("usage on schema supaclaw to anon", "anon may use the schema"),
        ("select on messages, inbox to anon", "anon has rights on tables inbox, messages"),
        ("update (text) on messages to authenticated", "authenticated has rights on tables messages"),
        ("usage on all sequences in schema supaclaw to authenticated", "authenticated has rights on sequences "),
        ("execute on function recover(interval) to anon", "anon has rights on functions recover"),
    ],
)
def test_what_the_web_may_do_is_told_in_one_line_and_revoked(
    supaclaw: Supaclaw, web_roles: None, dsn: str, grant: str, told: str
) -> None:
    ask(dsn, f"set search_path = supaclaw; grant {grant}")
    done = supaclaw("deploy", "supabase", "--direct", dsn)
    [line] = [line for line in done.out.splitlines() if line.startswith("FAIL")]
    assert done.code == 1
    assert f"anon and authenticated: {told}" in line
    fixed = supaclaw("deploy", "supabase", "--direct", dsn, "--fix")
    assert (fixed.code, "FAIL" in fixed.out) == (0, False), fixed.out


@pytest.mark.parametrize("of", ["database", "role"])
def test_too_few_connections_are_told(supaclaw: Supaclaw, server: Server, dsn: str, of: str) -> None:
    parts = urlsplit(dsn)
    name = parts.path.removeprefix("/") if of == "database" else parts.username
    asyncio.run(server.maintain(f"alter {of} {name} connection limit 9"))
    try:
        done = supaclaw("deploy", "supabase", "--direct", dsn)
    finally:
        asyncio.run(server.maintain(f"alter {of} {name} connection limit -1"))
    [line] = [line for line in done.out.splitlines() if line.startswith("FAIL")]
    assert done.code == 1
    assert line.startswith("FAIL connections: only ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "set SUPACLAW_DATABASE_URL"),
        (("--direct", "mysql://x"), "must start with postgresql://"),
        (("--direct", "postgresql://a:b@127.0.0.1:6543/c"), "it is a transaction pooler's"),
        (("--direct", "postgresql://a:b@127.0.0.1:1/c"), "FAIL direct address"),
    ],
)
def test_bad_addresses_are_told(supaclaw: Supaclaw, arguments: tuple[str, ...], words: str) -> None:
    done = supaclaw("deploy", "supabase", *arguments)
    assert done.code == 1
    assert words in done.out + done.err


def test_a_pooler_that_is_none_is_told(supaclaw: Supaclaw, dsn: str) -> None:
    assert (
        "FAIL pooler: it isn't a transaction pooler's"
        in supaclaw("deploy", "supabase", "--direct", dsn, "--pooler", dsn).out
    )
