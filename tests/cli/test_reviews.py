import asyncio
from datetime import UTC, datetime

import pytest

from gateway.domain.conversation.tools import ToolClass
from gateway.domain.principals import Label
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewQuestion
from tests.cli.conftest import Supaclaw


@pytest.fixture(autouse=True)
def _the_agent_asks(dsn: str, monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> None:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    supaclaw("owner", "set", "telegram", "1")

    async def ask() -> None:
        async with await Database.connect(dsn) as database, database.transaction() as tx:
            owner = await principals.owner(tx)
            assert owner is not None
            bob = await principals.ensure_member(tx, "Bob", "telegram:2")
            for asked in (owner.id, bob):
                question = ReviewQuestion(
                    asked, asked, "write_file", {}, "+Be evil.\u202e", Label.UNTRUSTED, act=ToolClass.PERSIST
                )
                await reviews.ask(tx, question, datetime.now(UTC))

    asyncio.run(ask())


def test_the_owners_questions_are_listed_shown_and_answered(supaclaw: Supaclaw) -> None:
    [row] = supaclaw("reviews", "list", "--json").json
    assert (row["name"], row["tool"], row["state"]) == ("A1", "write_file", "open")
    assert supaclaw("approvals", "show", "A1").out == "A1: write_file, open\n\n+Be evil.⟨U+202E⟩\n"
    assert supaclaw("approvals", "approve", "a1").out == "A1 is approved\n"
    assert supaclaw("approvals", "show", "1", "--json").json[0]["state"] == "approved"
    assert supaclaw("approvals", "list", "--json").json == []


@pytest.mark.parametrize("command", ["show", "approve", "deny"])
@pytest.mark.parametrize("number", ["A2", "A9", "x"])
def test_anybody_elses_and_no_question_at_all_are_an_error_in_a_line(
    supaclaw: Supaclaw, command: str, number: str
) -> None:
    done = supaclaw("approvals", command, number)
    assert (done.code, done.err.count("\n"), " /" in done.err) == (1, 1, False)


def test_the_audit_trail_is_listed_and_verified(supaclaw: Supaclaw) -> None:
    supaclaw("approvals", "approve", "A1")
    rows = supaclaw("audit", "list", "--json").json
    assert [(row["event"], row["subject"]) for row in rows] == [
        ("approval approved", "A1"),
        ("approval asked", "A2"),
        ("approval asked", "A1"),
        ("owner set", ""),
    ]
    assert supaclaw("audit", "verify").out == f"4 entries in order; the newest hash is {rows[0]['hash']}\n"
    assert supaclaw("audit", "verify", "--head", rows[1]["hash"], "--json").json["broken"] == ""
    cut = supaclaw("audit", "verify", "--head", "00")
    assert (cut.code, "no row has the hash 00" in cut.err) == (1, True)


def test_what_the_gateway_asks_is_not_allowed_in_advance(supaclaw: Supaclaw) -> None:
    assert supaclaw("grants", "list").out == "No grants.\n"
    assert "asked once only" in supaclaw("grants", "give", "A1", "5", "24h").err
    assert "no such grant" in supaclaw("grants", "revoke", "G1").err
