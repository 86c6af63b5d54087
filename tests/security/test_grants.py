"""Standing grants: one exact call, so many times, for so long, given by the person who is asked and by nobody else."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.work.approvals import NotDecided, parse_terms
from gateway.domain.channels.channel import Capabilities
from gateway.domain.conversation.tools import AnyTool, Caller, Effect, Labelled, Tool, ToolArguments, ToolClass
from gateway.domain.ids import GrantId
from gateway.store.connection.pool import Database
from gateway.store.trust.grants import GrantRow, covered
from gateway.tools import Services
from tests.fakes.channel import FakeChannel
from tests.flow.path import MEMBER, FakeModel, MessagePath, build, call, in_turn, results, said

NOW = datetime(2026, 11, 23, tzinfo=UTC)


class Payment(ToolArguments):
    to: str
    amount: float
    invoices: tuple[int, ...] = ()


class Bank:
    """A tool whose calls can't be undone."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, float]] = []

    def tools(self, _services: Services) -> tuple[AnyTool, ...]:
        async def pay(payment: Payment, _caller: Caller) -> Labelled:
            self.paid.append((payment.to, payment.amount))
            return Labelled.own({"ok": True})

        return (Tool("pay", "Pays.", Payment, pay, Effect.ONCE, kind=ToolClass.IRREVERSIBLE),)


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
async def path(database: Database, workspace: Path, model: FakeModel, bank: Bank) -> MessagePath:
    able = Capabilities(max_text=4096, buttons=True)
    return await build(database, workspace, model, families=(bank.tools,), channel=FakeChannel(capabilities=able))


async def pays(path: MessagePath, to: str = "Bob", amount: float = 20.0, **more: object) -> dict[str, Any]:
    path.model.answer = in_turn(said("", call("pay", to=to, amount=amount, **more)), said("done"))
    await path.ask("pay")
    await path.settled()
    return results(path.model.prompts[-1])[-1]


async def test_what_cannot_be_undone_asks_even_in_a_clean_conversation(path: MessagePath, bank: Bank) -> None:
    async with path.working():
        assert (await pays(path))["waiting_for_approval"] == "A1"
        await path.channel.until(lambda texts: any("can't be undone" in text for text in texts))
        assert bank.paid == []
        await path.ask("/approve A1")
        await path.settled()
    assert bank.paid == [("Bob", 20.0)]


async def test_a_grant_lets_the_same_call_run_so_many_times_and_no_more(path: MessagePath, bank: Bank) -> None:
    async with path.working():
        await pays(path)
        assert "G1: pay, 2 times until" in await path.ask("/grant A1 2 24h")
        assert "G1: pay" in await path.ask("/grant")
        for number in (2, 3):
            assert (await pays(path))["running_as"] == f"A{number}"
        assert len(bank.paid) == 2
        assert "waiting_for_approval" in await pays(path)
        assert await path.ask("/grant") == "No grants."
        await path.channel.until(lambda texts: any("allowed in advance by G1 and has run" in text for text in texts))
    events = [row[0] for row in await path.rows("select event from audit order by seq")]
    assert (events.count("grant given"), events.count("grant used"), events.count("approval run")) == (1, 2, 2)


async def test_another_argument_asks_and_a_bounded_one_may_differ(path: MessagePath, bank: Bank) -> None:
    async with path.working():
        await pays(path)
        await path.ask("/grant A1 9 1d amount<=50 total 60")
        assert "running_as" in await pays(path, amount=45.5)
        assert "waiting_for_approval" in await pays(path, amount=14.6)
        assert "running_as" in await pays(path, amount=14.5)
        assert "waiting_for_approval" in await pays(path, to="Eve", amount=0.0)
    assert bank.paid == [("Bob", 45.5), ("Bob", 14.5)]


async def test_only_a_number_can_be_bounded(path: MessagePath, bank: Bank) -> None:
    async with path.working():
        await pays(path, invoices=[1, 2])
        for name in ("invoices", "to", "absent"):
            assert "can't be bounded" in await path.ask(f"/grant A1 9 1d {name}<=50")
        assert await path.ask("/grant") == "No grants."


async def test_a_grant_ends_by_time_and_by_its_person(path: MessagePath, bank: Bank) -> None:
    async with path.working():
        await pays(path)
        await path.ask("/grant A1 5 24h")
        assert await path.ask("/grant revoke G1") == "G1 is revoked."
        assert "no such grant" in await path.ask("/grant revoke G1")
        assert "waiting_for_approval" in await pays(path)
        await path.ask("/grant A1 5 24h")
        async with path.database.transaction() as tx:
            await tx.execute("update grants set expires_at = now() - interval '1 second'")
        assert "waiting_for_approval" in await pays(path)
    assert bank.paid == []


async def test_nobody_else_gives_or_revokes_one(path: MessagePath) -> None:
    async with path.working():
        await pays(path)
        assert "No approval with that number" in await path.ask("/grant A1 5 24h", chat=MEMBER, sender=MEMBER)
        await path.ask("/grant A1 5 24h")
        assert "no such grant" in await path.ask("/grant revoke G1", chat=MEMBER, sender=MEMBER)
        assert await path.ask("/grant", chat=MEMBER, sender=MEMBER) == "No grants."
    assert await path.rows("select revoked_at is null from grants") == [(True,)]


async def test_the_commands_words_from_the_agent_are_words(path: MessagePath) -> None:
    async with path.working():
        await pays(path)
        path.model.answer = lambda _: said("/grant A1 5 24h")
        await path.ask("say it")
        await path.ask("hello")
    assert await path.rows("select id from grants") == []


def row(**changes: Any) -> GrantRow:
    facts: dict[str, Any] = {
        "id": GrantId(1),
        "principal_id": None,
        "tool": "pay",
        "act": ToolClass.SEND,
        "arguments": {"to": "Bob"},
        "base": "",
        "bounded": "amount",
        "at_most": Decimal(50),
        "times_left": 1,
        "sum_left": None,
        "expires_at": NOW,
        "created_at": NOW,
    }
    return GrantRow(**facts | changes)


@pytest.mark.parametrize("amount", [50.01, -1, "20", True, None, float("nan"), float("inf"), [20]])
def test_what_is_no_number_up_to_the_bound_is_not_covered(amount: Any) -> None:
    assert covered(row(), {"to": "Bob", "amount": amount}) is None


def test_every_argument_counts() -> None:
    assert covered(row(), {"to": "Bob", "amount": 50}) == 50
    assert covered(row(), {"to": "Bob"}) is None
    assert covered(row(), {"to": "Bob", "amount": 1, "note": "x"}) is None
    assert covered(row(sum_left=Decimal(10)), {"to": "Bob", "amount": 10.5}) is None
    fixed = row(bounded=None, at_most=None, arguments={"n": 1})
    assert covered(fixed, {"n": 1}) == 0
    assert covered(fixed, {"n": True}) is None


@pytest.mark.parametrize(
    "text", ["", "5", "24h", "0 24h", "5 31d", "5 0h", "5 24h amount<50", "5 24h amount<=-1", "x y"]
)
def test_terms_that_are_unclear_are_refused(text: str) -> None:
    with pytest.raises(NotDecided):
        parse_terms(text, NOW)


def test_terms() -> None:
    terms = parse_terms("5 24h amount<=50.5 total 200", NOW)
    assert (terms.times, terms.expires_at - NOW) == (5, timedelta(hours=24))
    assert terms.bound is not None
    assert (terms.bound.name, terms.bound.at_most, terms.bound.total) == ("amount", Decimal("50.5"), Decimal(200))
