"""The sender while the database comes and goes: what the platform said is not forgotten, nothing is sent twice."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.domain.channel import SendUncertain
from gateway.domain.errors import DatabaseDown, TryAgainLater
from gateway.flow.outbound import attempt as attempt_module
from gateway.flow.outbound import sender as sender_module
from gateway.flow.outbound.attempt import UNCONFIRMED
from gateway.store import outbox
from gateway.store.pool import Database
from tests.flow.outbound.test_sender import STATES, SURE, sent, unsent
from tests.flow.path import MessagePath

Break = Callable[..., None]


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Make a statement fail at its first calls, before or after it took effect."""
    monkeypatch.setattr(sender_module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(attempt_module, "POLL_SECONDS", 0.01)

    def breaking(name: str, *errors: Exception, afterwards: bool = False) -> None:
        really, left = getattr(outbox, name), list(errors)

        async def statement(*arguments: Any) -> Any:
            if left and not afterwards:
                raise left.pop(0)
            result = await really(*arguments)
            if left:
                raise left.pop(0)
            return result

        monkeypatch.setattr(outbox, name, statement)

    return breaking


@pytest.mark.parametrize("statement", ["due", "next_for"])
async def test_looking_for_work_goes_on_when_the_database_is_back(
    path: MessagePath, breaks: Break, statement: str
) -> None:
    breaks(statement, DatabaseDown("away"), DatabaseDown("away"))
    await unsent(path, "one", "two")
    assert await sent(path, count=2) == ["one", "two"]


@pytest.mark.parametrize("trouble", [DatabaseDown("away"), TryAgainLater("too busy")])
async def test_a_receipt_is_written_however_long_that_takes(
    path: MessagePath, breaks: Break, trouble: TryAgainLater
) -> None:
    breaks("sent", *[trouble] * 5)
    await unsent(path, "hello")
    await sent(path, count=1)
    assert (path.channel.asked, await path.rows(STATES)) == (1, [("hello", "sent")])


async def test_a_receipt_that_fails_for_no_known_reason_is_tried_again(path: MessagePath, breaks: Break) -> None:
    breaks("sent", RuntimeError("a bug"), RuntimeError("a bug"))
    await unsent(path, "hello")
    await sent(path, count=1)
    assert (path.channel.asked, await path.rows(STATES)) == (1, [("hello", "sent")])


@pytest.mark.parametrize(("idempotent", "asked"), [(False, 1), (True, 8)])
async def test_one_that_can_never_be_written_blocks_nothing_that_follows(
    database: Database, path: MessagePath, breaks: Break, idempotent: bool, asked: int
) -> None:
    if idempotent:
        path.channel.capabilities = SURE
    async with database.connection() as conn:
        await conn.execute(
            """create function refuse() returns trigger language plpgsql as $$ begin raise 'no such thing'; end $$;
               create trigger refuse before update on outbox for each row
                 when (new.state = 'sent' and new.text = 'hello') execute function refuse()"""
        )
    breaks("due")  # looks again at once
    await unsent(path, "hello", "later")
    assert (await sent(path, count=asked + 2))[-2:] == ["later", UNCONFIRMED]
    states = [("hello", "uncertain"), ("later", "sent"), (UNCONFIRMED, "sent")]
    assert (path.channel.asked, await path.rows(STATES)) == (asked + 2, states)


@pytest.mark.parametrize("afterwards", [False, True])
async def test_what_could_not_be_announced_has_not_left_and_waits(
    path: MessagePath, breaks: Break, afterwards: bool
) -> None:
    breaks("sending", DatabaseDown("away"), afterwards=afterwards)
    await unsent(path, "hello")
    running = asyncio.create_task(path.outbound.run())
    await path.outbound.drain(5)
    assert (path.channel.asked, await path.rows(STATES)) == (0, [("hello", "pending")])
    await path.rows("update outbox set run_at = now() returning id")
    assert await path.channel.until(bool) == ["hello"]
    running.cancel()
    await asyncio.wait([running])


async def test_a_bug_here_stops_neither_this_chat_nor_another(path: MessagePath, breaks: Break) -> None:
    breaks("next_for", ZeroDivisionError())
    await unsent(path, "one", "two")
    assert await sent(path, count=2) == ["one", "two"]


async def test_a_doubt_whose_commit_was_unknown_is_told_once(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, lost = path.database.run, [True]

    async def run(work: Any) -> Any:
        done = await really(work)
        if lost and await path.rows("select 1 from outbox where state = 'uncertain'"):
            lost.clear()
            raise DatabaseDown("gone at COMMIT")
        return done

    monkeypatch.setattr(path.database, "run", run)
    monkeypatch.setattr(sender_module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(attempt_module, "POLL_SECONDS", 0.01)
    path.channel.faults = [SendUncertain("no reply")]
    await unsent(path, "hello")
    assert await sent(path, count=1) == [attempt_module.UNCONFIRMED]
    assert await path.rows("select count(*) from outbox") == [(2,)]
    assert lost == []


async def test_a_defect_while_looking_for_work_ends_nothing(path: MessagePath, breaks: Break) -> None:
    breaks("due", ZeroDivisionError())
    await unsent(path, "one")
    assert await sent(path, count=1) == ["one"]
