import asyncio

import pytest

from gateway.store.connection.pool import Database
from gateway.store.people import principals
from tests.cli.conftest import Supaclaw


@pytest.fixture(autouse=True)
def _with_an_owner(dsn: str, monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> None:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    supaclaw("owner", "set", "telegram", "1")


def test_a_token_is_not_the_owner_unless_it_is_made_so(supaclaw: Supaclaw) -> None:
    assert supaclaw("token", "create", "script", "--scope", "chat").out.startswith("claw_")
    made = supaclaw("token", "create", "editor", "--scope", "chat", "--as-owner", "--yes")
    assert made.out.startswith("claw_")
    assert "will be treated as you" in made.err
    rows = supaclaw("token", "list", "--json").json
    assert {row["name"]: row["as_owner"] for row in rows} == {"editor": True, "script": False}
    assert "as owner" in supaclaw("token", "list").out


def test_a_token_of_the_owners_is_made_after_a_yes_only(supaclaw: Supaclaw) -> None:
    asked = supaclaw("token", "create", "editor", "--scope", "chat", "--as-owner")
    assert (asked.code, "claw_" in asked.out) == (1, False)
    assert "Create it?" in asked.err
    assert supaclaw("token", "list", "--json").json == []


def test_only_a_token_that_talks_speaks_as_the_owner(supaclaw: Supaclaw) -> None:
    refused = supaclaw("token", "create", "ci", "--scope", "trigger", "--as-owner", "--yes")
    assert (refused.code, "--scope chat" in refused.err) == (1, True)
    assert supaclaw("token", "list", "--json").json == []


def test_revoking_says_what_it_ended(supaclaw: Supaclaw) -> None:
    supaclaw("token", "create", "script", "--scope", "chat")
    assert (
        supaclaw("token", "revoke", "script").out
        == "script is revoked (messages closed: 0; runs cancelled: 0; schedules paused: none)\n"
    )
    assert supaclaw("token", "revoke", "script").code == 1


def test_an_account_is_parted_on_the_command_line(supaclaw: Supaclaw, dsn: str) -> None:
    async def join() -> None:
        async with await Database.connect(dsn) as database, database.transaction() as tx:
            owner = await principals.owner(tx)
            assert owner is not None
            await principals.add_identity(tx, owner.id, "slack:U1")

    asyncio.run(join())
    assert supaclaw("owner", "part", "slack:U1").out == "slack:U1 is unlinked\n"
    [row] = supaclaw("owner", "show", "--json").json
    assert row["identities"] == ["telegram:1"]
    again = supaclaw("owner", "part", "slack:U1")
    assert (again.code, "is not linked" in again.err) == (1, True)


def test_a_token_reads_one_folder_of_files_if_it_is_made_for_it(supaclaw: Supaclaw) -> None:
    assert supaclaw("token", "create", "trips", "--scope", "files", "--folder", "trips/./2026").code == 0
    assert "'..' is not allowed" in supaclaw("token", "create", "a", "--scope", "files", "--folder", "../x").err
    assert "add the scope files" in supaclaw("token", "create", "a", "--scope", "chat", "--folder", "x").err
    assert [row["scopes"] for row in supaclaw("token", "list", "--json").json] == [["files:trips/2026"]]
