import asyncio
import shlex

import pytest

from gateway.store.connection.pool import Database
from tests.cli.conftest import Supaclaw


@pytest.fixture(autouse=True)
def _with_an_owner(dsn: str, monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> None:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    supaclaw("owner", "set", "telegram", "1")


def register(supaclaw: Supaclaw, source: str = "ci") -> str:
    done = supaclaw("webhooks", "register", source)
    assert done.code == 0, done.err
    return done.out.splitlines()[0]


def test_a_source_gets_a_token_of_its_own_and_a_line_to_try_it(supaclaw: Supaclaw) -> None:
    token, _, line = supaclaw("webhooks", "register", "ci").out.splitlines()

    assert token.startswith("claw_")
    assert shlex.split(line) == [
        *("curl", "http://127.0.0.1:8787/trigger/ci"),
        *("-H", f"Authorization: Bearer {token}", "-d", "This is a test."),
    ]
    (row,) = supaclaw("token", "list", "--json").json
    assert (row["scopes"], row["source"]) == (["trigger"], "ci")
    assert " ci " in supaclaw("token", "list").out


def test_behind_a_proxy_the_line_names_its_address(supaclaw: Supaclaw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPACLAW_PUBLIC_URL", "https://claw.example.org")

    assert "curl https://claw.example.org/trigger/ci " in supaclaw("webhooks", "register", "ci").out


def test_sources_are_listed_without_their_tokens(supaclaw: Supaclaw, dsn: str) -> None:
    token = register(supaclaw)
    asyncio.run(_heard_of(dsn, "ci"))

    done = supaclaw("webhooks", "list", "--json")

    (row,) = done.json
    assert (row["source"], row["triggers"], row["last_used_at"]) == ("ci", 1, None)
    assert token not in done.out
    assert " ci " in supaclaw("webhooks", "list").out


def test_a_source_is_registered_once(supaclaw: Supaclaw) -> None:
    register(supaclaw)

    done = supaclaw("webhooks", "register", "ci")

    assert done.code == 1
    assert "webhook ci" in done.err
    assert len(supaclaw("webhooks", "list", "--json").json) == 1


def test_a_revoked_source_is_gone_and_can_be_registered_again(supaclaw: Supaclaw) -> None:
    first = register(supaclaw)

    assert (
        supaclaw("webhooks", "revoke", "ci").out
        == "ci is revoked (messages closed: 0; runs cancelled: 0; schedules paused: none)\n"
    )
    assert supaclaw("webhooks", "list", "--json").json == []
    done = supaclaw("webhooks", "revoke", "ci")
    assert done.code == 1
    assert "`supaclaw webhooks list`" in done.err
    assert register(supaclaw) != first


@pytest.mark.parametrize("source", ["../ci", "CI", "a b", "", "x" * 65])
def test_a_source_that_could_name_no_file_is_refused(supaclaw: Supaclaw, source: str) -> None:
    done = supaclaw("webhooks", "register", source)

    assert done.code == (1 if source else 2)
    assert ("cannot be a source" if source else "must not be empty") in done.err


async def _heard_of(dsn: str, source: str) -> None:
    async with await Database.connect(dsn) as database, database.connection() as conn:
        await conn.execute(
            """with task as (insert into tasks (id, master_id, kind, lane, principal_id)
                 select gen_random_uuid(), gen_random_uuid(), 'agent', 'agents', id from principals returning *)
               insert into triggers (principal_id, source, account, digest, task_id)
               select principal_id, $1, 'x', 'd', id from task""",
            source,
        )
