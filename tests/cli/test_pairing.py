import asyncio
from datetime import UTC, datetime

import pytest

from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.store.connection.pool import Database
from gateway.store.people import pairings
from tests.cli.conftest import Supaclaw


@pytest.fixture(autouse=True)
def _bob_asks(dsn: str, monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> None:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    supaclaw("owner", "set", "telegram", "1")
    at = Address("telegram", "bot", "2")
    inbound = Inbound(at, Sender("2", "Bob"), "let me in", "m1", datetime.now(UTC), private=True, as_owner=True)

    async def ask() -> None:
        async with await Database.connect(dsn) as database, database.transaction() as tx:
            assert await pairings.request(tx, inbound, "ABCDEFGH")

    asyncio.run(ask())


def test_who_asks_is_listed_and_let_in(supaclaw: Supaclaw) -> None:
    [asked] = supaclaw("pairing", "list", "--json").json
    assert (asked["name"], asked["sender"], asked["code"], asked["state"]) == ("Bob", "2", "ABCDEFGH", "open")
    assert supaclaw("pairing", "approve", "abcd-efgh").out == "`Bob` on telegram (id `2`) has access\n"
    [inside] = supaclaw("pairing", "list", "--json").json
    assert inside["state"] == "approved"
    assert "Bob" in supaclaw("pairing", "list").out


def test_who_was_let_in_can_be_taken_back_by_number(supaclaw: Supaclaw) -> None:
    supaclaw("pairing", "approve", "ABCDEFGH")
    [inside] = supaclaw("pairing", "list", "--json").json
    assert supaclaw("pairing", "deny", str(inside["id"])).out == "`Bob` on telegram (id `2`) has no access\n"
    assert supaclaw("pairing", "list", "--json").json == []


@pytest.mark.parametrize("call", [("approve", "WRNGCODE"), ("deny", "77"), ("deny", "WRNGCODE")])
def test_what_is_not_open_is_an_error_in_a_line(supaclaw: Supaclaw, call: tuple[str, str]) -> None:
    done = supaclaw("pairing", *call)
    assert done.code == 1
    assert done.err.startswith("supaclaw: This code isn't valid")
    assert done.err.count("\n") == 1
