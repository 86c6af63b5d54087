"""A message that cannot be stored must not hold up what comes after it."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.domain.channels.routing import Ignore
from gateway.domain.errors import DatabaseDown, TryAgainLater
from gateway.flow.inbound import spool as spool_module
from gateway.flow.inbound.spool import QUARANTINE_TRIES, Quarantine
from gateway.store.transcript import unread
from tests.flow.path import MEMBER, OWNER, MessagePath, message

TEXTS = "select text from messages where kind = 'user' order by id"


def poisoned(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Every message with `poison` in it fails to be stored."""

    def refusing(really: Any) -> Any:
        async def stored(*arguments: Any, **more: Any) -> Any:
            said = [each for argument in arguments for each in (argument if isinstance(argument, list) else [argument])]
            if any("poison" in getattr(each, "text", "") for each in said):
                raise error
            return await really(*arguments, **more)

        return stored

    for name in ("accept", "receive"):
        monkeypatch.setattr(unread, name, refusing(getattr(unread, name)))


async def test_it_is_put_aside_after_three_tries_and_the_owner_is_told(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    await path.tell("hello")
    poisoned(monkeypatch, ValueError("no such thing"))
    batch = [message("poison", id="m-poison"), message("after it", id="m-after")]
    for _ in range(QUARANTINE_TRIES - 1):
        with pytest.raises(ValueError, match="no such thing"):
            await path.inbound.accept(batch)
    aside, after = await path.inbound.accept(batch)

    assert aside.decision == Ignore("quarantined")
    assert after.message_id is not None
    assert await path.rows("select text from messages where kind = 'user' order by id") == [("hello",), ("after it",)]
    [(notice,)] = await path.rows("select text from messages where kind = 'notice'")
    assert "set aside: ValueError" in notice


async def test_what_the_database_refuses_for_this_one_only_waits_and_lets_the_others_pass(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 0.01)
    await path.tell("hello")
    with monkeypatch.context() as broken:
        poisoned(broken, DatabaseDown("internal error"))
        poison = await path.tell("poison")
        after = await path.tell("after it")
        async with path.working():
            assert (await after.stored()).message_id is not None
        assert poison.later is not None
        assert not poison.later.done()
    async with path.working():
        assert (await poison.stored()).message_id is not None
    assert await path.rows(TEXTS) == [("hello",), ("after it",), ("poison",)]


async def test_what_would_happen_to_any_message_is_no_fault_of_this_one(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 0.01)
    await path.tell("hello")
    async with path.database.connection() as conn:
        await conn.execute("alter table messages add constraint none check (kind <> 'user') not valid")
    waiting = [await path.tell(text) for text in ("one", "two")]
    async with path.working():
        await asyncio.sleep(0.3)
        assert [accepted.later is not None and accepted.later.done() for accepted in waiting] == [False, False]
        async with path.database.connection() as conn:
            await conn.execute("alter table messages drop constraint none")
        await asyncio.gather(*(accepted.stored() for accepted in waiting))
    assert await path.rows(TEXTS) == [("hello",), ("one",), ("two",)]


async def test_nothing_stays_of_a_rehearsal(path: MessagePath, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = "select (select count(*) from inbox), (select count(*) from sessions), (select count(*) from tasks)"
    before = await path.rows(counts)
    poisoned(monkeypatch, ValueError("no such thing"))
    with pytest.raises(ValueError, match="no such thing"):
        await path.tell("poison")
    assert await path.rows(counts) == before


async def test_what_was_put_aside_is_taken_up_again_when_asked(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    await path.tell("hello")
    with monkeypatch.context() as broken:
        poisoned(broken, ValueError("no such thing"))
        for _ in range(QUARANTINE_TRIES - 1):
            with pytest.raises(ValueError, match="no such thing"):
                await path.tell("poison", id="m-poison")
        await path.tell("poison", id="m-poison")
        assert await path.inbound.requeue() == 1
        assert await path.rows(TEXTS) == [("hello",)]
    assert await path.inbound.requeue() == 1
    assert await path.rows(TEXTS) == [("hello",), ("poison",)]
    assert await path.inbound.requeue() == 0


async def test_an_outage_puts_nothing_aside(path: MessagePath, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.workspace / "sessions").write_text("so that nothing can be kept on disk either")
    poisoned(monkeypatch, TryAgainLater("busy"))
    for _ in range(QUARANTINE_TRIES + 1):
        with pytest.raises(TryAgainLater):
            await path.tell("poison", id="m-poison")


def test_it_counts_each_message_by_itself_and_remembers_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MAX_FAILURES_REMEMBERED", 2)
    quarantine = Quarantine()
    assert [quarantine.give_up((id,)) for id in ("a", "b", "a", "a")] == [False, False, False, True]
    assert not quarantine.give_up(("c",))
    assert quarantine.give_up(("a",))
    assert [quarantine.give_up(("b",)) for _ in range(2)] == [False, False]


async def test_a_chat_that_fails_holds_up_no_other_in_its_batch(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, ValueError("no such thing"))
    batch = [message("poison", chat=OWNER), message("hello", chat=MEMBER, sender=MEMBER), message("later", chat=OWNER)]
    with pytest.raises(ValueError, match="no such thing"):
        await path.inbound.accept(batch)
    assert await path.rows("select text from messages where kind = 'user'") == [("hello",)]


@pytest.mark.parametrize("table", ["messages", "outbox", "tasks", "task_steps"])
async def test_a_database_that_takes_no_answers_does_not_work(path: MessagePath, table: str) -> None:
    assert await path.inbound.rehearsal.succeeds()
    async with path.database.connection() as conn:
        await conn.execute(f"alter table {table} add constraint none check (false) not valid")
    with capture_logs() as logs:
        assert not await path.inbound.rehearsal.succeeds()
    assert logs == []
