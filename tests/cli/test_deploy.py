"""`supaclaw deploy supabase`, against the embedded Postgres with roles that stand in for Supabase's."""

import asyncio
from collections.abc import Iterator

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
def web_role(server: Server) -> Iterator[None]:
    """`anon`, for as long as a test takes; ask for it before the database, which is dropped first then."""
    asyncio.run(server.maintain("create role anon nologin"))
    yield
    asyncio.run(server.maintain("drop role anon"))


def test_a_good_database_passes_every_step(supaclaw: Supaclaw, web_role: None, dsn: str) -> None:
    done = supaclaw("deploy", "supabase", "--direct", dsn, "--pooler", f"{dsn}&pool_mode=transaction")
    assert "FAIL" not in done.out, done.out
    assert (done.code, done.out.count("ok ")) == (0, 6)


def test_an_empty_one_is_told_to_migrate_and_does(supaclaw: Supaclaw, empty_dsn: str) -> None:
    told = supaclaw("deploy", "supabase", "--direct", empty_dsn)
    assert told.code == 1
    assert "run again with --migrate" in told.out
    assert "ok   migrations" in supaclaw("deploy", "supabase", "--direct", empty_dsn, "--migrate").out


def test_what_the_web_may_do_is_told_in_one_line(supaclaw: Supaclaw, web_role: None, dsn: str) -> None:
    ask(dsn, "grant usage on schema supaclaw to anon; grant select on messages, inbox to anon")
    done = supaclaw("deploy", "supabase", "--direct", dsn)
    [line] = [line for line in done.out.splitlines() if line.startswith("FAIL")]
    assert done.code == 1
    assert "anon has rights on inbox, messages; anon may use the schema: leave supaclaw" in line


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
        "FAIL pooler: it is no transaction pooler's"
        in supaclaw("deploy", "supabase", "--direct", dsn, "--pooler", dsn).out
    )
