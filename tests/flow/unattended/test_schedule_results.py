"""What schedules told is delivered when it is there, goes elsewhere when it was refused, and is never said twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.domain.channels.channel import SendFailed, SendUncertain
from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.model import Attempt, ModelsExhausted
from gateway.domain.errors import DatabaseDown
from gateway.domain.principals import Label
from gateway.flow.unattended import schedule_results
from gateway.store.connection.pool import Database
from gateway.store.work import schedules
from gateway.store.work.schedules import ScheduleRow
from tests.flow.appointments import address_of, fire, known, last_run, noted, plan, work
from tests.flow.path import MEMBER, FakeModel, MessagePath, build, in_turn, message, restarted, said

WEB = Address("web", "owner", "main")


async def hears(path: MessagePath, chat: str = "1", **more: str) -> None:
    """Somebody has written here and was answered."""
    await path.tell("hello", chat=chat, **more)
    await path.turns.run(await path.claim())


async def runs(path: MessagePath, row: ScheduleRow, *faults: Exception, days: int = 0) -> None:
    """Its slot has come, and what it told is sent, or meets a fault."""
    await fire(path, row, days)
    await work(path)
    path.channel.faults.extend(faults)
    await sent(path)


async def sent(path: MessagePath) -> None:
    """Let everything go out."""
    async with path.working(), asyncio.timeout(30):
        while True:
            path.signals.outbox.set()
            await path.outbound.drain(10)
            if not await path.rows("select from outbox where state = 'pending' and run_at <= now()"):
                return


@pytest.fixture
async def path(database: Database, workspace: Path) -> MessagePath:
    """The owner has two chats, and wrote in the first one last."""
    path = await build(database, workspace, FakeModel())
    await hears(path, "other")
    await hears(path)
    await sent(path)
    path.model.answer = lambda _: said("Stretch now.")
    return path


async def placed(path: MessagePath) -> list[tuple[str, str, str]]:
    """Chat, kind and text of what was said of schedules."""
    return await path.rows(
        """select a.chat, m.kind, m.text from messages m join addresses a on a.id = m.address_id
           where m.origin = 'schedule' or (m.kind = 'notice' and m.text like 'The schedule%') order by m.id"""
    )


async def test_what_is_sent_is_delivered(path: MessagePath) -> None:
    row = await plan(path)
    await fire(path, row)
    await work(path)
    await path.follow_up.settle()
    assert noted(await last_run(path, row)) == ["executed", "produced", "message"]
    await sent(path)
    await path.follow_up.settle()
    assert noted(await last_run(path, row)) == ["executed", "produced", "message", "delivered"]


async def test_where_people_read_the_transcript_it_is_there_at_once(path: MessagePath) -> None:
    [page] = await path.inbound.accept([replace(message("hello"), address=WEB)])
    await path.turns.run(await path.claim())
    row = await plan(path, address=await address_of(path, page.session_id))
    await fire(path, row)
    await work(path)
    await path.follow_up.settle()
    assert (await last_run(path, row)).delivered_at


async def test_what_was_refused_is_said_once_more_elsewhere(path: MessagePath) -> None:
    row = await plan(path)
    await runs(path, row, SendFailed("blocked"))
    await path.follow_up.settle()
    assert await placed(path) == [("1", "assistant", "Stretch now."), ("other", "assistant", "Stretch now.")]
    assert noted(await last_run(path, row)) == ["executed", "produced", "message"]
    await sent(path)
    await path.follow_up.settle()
    assert noted(await last_run(path, row)) == ["executed", "produced", "message", "delivered"]
    assert path.channel.shown[-1].address.chat == "other"


async def test_what_waits_for_a_channel_that_is_gone_goes_elsewhere_and_not_there_when_it_is_back(
    database: Database, workspace: Path
) -> None:
    configured = ["fake"]
    path = await build(database, workspace, FakeModel(), configured=configured, adopt=False)
    await path.inbound.accept([replace(message("hello"), address=WEB)])
    await path.turns.run(await path.claim())
    await hears(path)
    path.model.answer = lambda _: said("Stretch now.")
    row = await plan(path)
    await fire(path, row)
    await work(path)
    await path.follow_up.settle()
    configured.clear()
    await path.follow_up.settle()
    assert await placed(path) == [("1", "assistant", "Stretch now."), ("main", "assistant", "Stretch now.")]
    await path.follow_up.settle()
    assert (await last_run(path, row)).delivered_at
    await path.outbound.adopt("fake", path.channel)
    await sent(path)
    assert path.channel.texts == ["re: hello"]


async def test_refused_there_too_it_is_an_error_and_its_owner_is_told(path: MessagePath) -> None:
    row = await plan(path)
    await runs(path, row, SendFailed("blocked"))
    await path.follow_up.settle()
    path.channel.faults.append(SendFailed("chat not found"))
    await sent(path)
    await path.follow_up.settle()
    run = await last_run(path, row)
    assert noted(run) == ["executed", "produced", "message", "error"]
    assert run.error == "could not be delivered: chat not found"
    assert (await placed(path))[-1] == (
        "1",
        "notice",
        'The schedule "Stand-up", planned for Mon 23 Nov 2026 08:30 Europe/Berlin, ran, but its '
        "message wasn't delivered: chat not found",
    )
    assert (await known(path, row)).failing_since


async def test_while_it_goes_on_not_to_arrive_that_is_told_once_and_then_that_it_does(path: MessagePath) -> None:
    row = await plan(path)
    for day in range(2):
        await runs(path, row, SendFailed("blocked"), days=day)
        await path.follow_up.settle()
        path.channel.faults.append(SendFailed("blocked"))
        await sent(path)
        await path.follow_up.settle()
        await sent(path)
    notices = [text for _, kind, text in await placed(path) if kind == "notice"]
    assert len(notices) == 1
    await runs(path, row, days=2)
    await path.follow_up.settle()
    assert (await placed(path))[-1] == ("1", "notice", 'The schedule "Stand-up" works again.')
    assert (await known(path, row)).failing_since is None
    assert (await last_run(path, row)).delivered_at


async def test_a_failure_is_over_when_the_next_result_is_there(path: MessagePath) -> None:
    row = await plan(path)
    path.model.answer = in_turn(ModelsExhausted("no", (Attempt("m", "auth", "no"),)), said("Stretch now."))
    await runs(path, row)
    assert (await known(path, row)).failing_since
    await runs(path, row, days=1)
    assert (await known(path, row)).failing_since
    for _ in range(2):
        await path.follow_up.settle()
    assert [text for _, kind, text in await placed(path) if kind == "notice"][1:] == [
        'The schedule "Stand-up" works again.'
    ]


async def test_what_may_have_arrived_is_never_said_again(path: MessagePath) -> None:
    row = await plan(path)
    await runs(path, row, SendUncertain("no reply"))
    await path.follow_up.settle()
    run = await last_run(path, row)
    assert run.error == "may not have arrived"
    assert run.delivered_at is None
    assert [text for _, _, text in await placed(path)] == ["Stretch now."]


async def test_what_was_refused_after_a_part_that_may_have_arrived_is_not_said_again_either(path: MessagePath) -> None:
    path.channel.capabilities = replace(path.channel.capabilities, max_text=20)
    path.model.answer = lambda _: said("Stretch now. " * 3)
    row = await plan(path)
    await runs(path, row, SendUncertain("no reply"), SendFailed("blocked"))
    await path.follow_up.settle()
    assert (await last_run(path, row)).error == "may not have arrived"
    assert [chat for chat, _, _ in await placed(path)] == ["1"]


async def test_of_a_members_nothing_but_its_name_is_told_to_the_owner(path: MessagePath) -> None:
    await hears(path, MEMBER, sender=MEMBER)
    await sent(path)
    [(member,)] = await path.rows("select principal_id from addresses where chat = $1", MEMBER)
    path.model.answer = lambda _: said("the secret")
    row = await plan(path, "tell the secret", principal=member, label=Label.KNOWN)
    await runs(path, row, SendFailed("blocked"))
    await path.follow_up.settle()
    [(_, _, result), (chat, kind, notice)] = await placed(path)
    assert (result, chat, kind) == ("the secret", "1", "notice")
    assert "secret" not in notice
    labels = await path.rows("select s.label from sessions s join addresses a on a.session_id = s.id where chat = '1'")
    assert labels == [(Label.OWNER,)]


async def test_two_that_look_at_once_say_it_once(path: MessagePath, workspace: Path) -> None:
    row = await plan(path)
    await runs(path, row, SendFailed("blocked"))
    other = await build(path.database, workspace, FakeModel())
    for each in (path, other, path):
        await each.follow_up.settle()
    assert len(await placed(path)) == 2


async def test_of_what_is_removed_nothing_is_followed(path: MessagePath) -> None:
    row = await plan(path)
    await runs(path, row, SendFailed("blocked"))
    async with path.database.transaction() as tx:
        await schedules.remove(tx, row.id)
    await path.follow_up.settle()
    assert len(await placed(path)) == 1


async def test_what_arrives_late_does_not_say_that_what_failed_since_works(path: MessagePath) -> None:
    row = await plan(path)
    path.model.answer = in_turn(said("Stretch now."), ModelsExhausted("no", (Attempt("m", "auth", "no"),)))
    await fire(path, row)
    await work(path)
    await runs(path, row, days=1)
    await path.follow_up.settle()
    assert [kind for _, kind, _ in await placed(path)] == ["assistant", "notice"]
    assert (await known(path, row)).failing_since
    assert await path.rows("select count(*) from schedule_runs where delivered_at is not null") == [(1,)]


@asynccontextmanager
async def following(path: MessagePath) -> AsyncIterator[None]:
    """With the worker, the sender and the follow-up at work."""
    async with path.working(), asyncio.TaskGroup() as group:
        running = group.create_task(path.follow_up.run())
        try:
            yield
        finally:
            running.cancel()


async def run_is(path: MessagePath, row: ScheduleRow, state: str) -> None:
    async with asyncio.timeout(30):
        while True:
            if state in noted(await last_run(path, row)):
                return
            await asyncio.sleep(0.01)


class TestByItself:
    async def test_each_delivery_is_recorded_as_soon_as_the_sender_is_done_with_it(self, path: MessagePath) -> None:
        row = await plan(path)
        async with following(path):
            for day in range(2):
                await fire(path, row, days=day)
                await run_is(path, row, "delivered")
            path.channel.faults.append(SendFailed("blocked"))
            await fire(path, row, days=2)
            await run_is(path, row, "delivered")
            path.channel.faults.append(SendUncertain("no reply"))
            await fire(path, row, days=3)
            await run_is(path, row, "error")
        assert [chat for chat, _, _ in await placed(path)] == ["1", "1", "1", "other", "1"]

    async def test_what_was_sent_while_nobody_followed_is_recorded_at_the_start(self, path: MessagePath) -> None:
        row = await plan(path)
        await runs(path, row)
        assert noted(await last_run(path, row)) == ["executed", "produced", "message"]
        again = await restarted(path)
        async with following(again):
            await run_is(again, row, "delivered")

    async def test_an_outage_is_waited_out(self, path: MessagePath, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schedule_results, "RETRY_SECONDS", 0.0)
        row, failures = await plan(path), [DatabaseDown("away")] * 3
        settle = path.follow_up.settle

        async def failing() -> None:
            if failures:
                raise failures.pop()
            await settle()

        monkeypatch.setattr(path.follow_up, "settle", failing)
        await runs(path, row)
        async with following(path):
            await run_is(path, row, "delivered")

    async def test_nothing_is_asked_of_the_database_while_nothing_is_followed(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked, settle = list[int](), path.follow_up.settle

        async def counted() -> None:
            looked.append(1)
            await settle()

        monkeypatch.setattr(path.follow_up, "settle", counted)
        async with following(path):
            for text in ("one", "two"):
                await path.ask(text)
                await path.outbound.drain(10)
        assert looked == [1]
