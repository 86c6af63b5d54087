import asyncio

import asyncpg
import pytest

from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.ids import MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.people.credentials import Scope
from gateway.domain.principals import Label, Role
from gateway.domain.work.tasks import Lane, Status
from gateway.store.delivery import outbox
from gateway.store.delivery.outbox import OutboxPart
from gateway.store.people import principals, tokens
from gateway.store.transcript import messages
from gateway.store.work import tasks, triggers
from gateway.store.work.tasks import TaskReport
from tests.store.world import World, blocked, somebody


async def trigger(world: World, source: str = "ci", *, account: str = "one", key: str | None = None) -> TaskId:
    task = await world.queue(dedupe=f"{triggers.DEDUPE}{source} {somebody()}")
    async with world.database.transaction() as tx:
        await triggers.add(tx, world.principal, source, task, account=account, key=key, digest="d")
    return task


async def conversation(world: World, name: str, label: Label = Label.UNTRUSTED) -> SessionId:
    async with world.database.transaction() as tx:
        return await triggers.conversation(tx, world.principal, name, label)


async def report(world: World, task: TaskId) -> TaskReport:
    async with world.database.connection() as conn:
        found = await tasks.report(conn, task)
    assert found is not None
    return found


class TestKeys:
    async def test_a_key_belongs_to_its_source(self, world: World) -> None:
        task = await trigger(world, "ci", key="k")
        async with world.database.connection() as conn:
            found = await triggers.by_key(conn, "ci", "k")
            assert found == triggers.TriggerRow("d", task, Status.PENDING)
            assert await triggers.by_key(conn, "shop", "k") is None
            assert await triggers.by_key(conn, "ci", "other") is None

    async def test_who_comes_with_the_same_key_waits_for_the_first(self, world: World) -> None:
        async def found() -> object:
            async with world.database.transaction() as tx:
                await triggers.reserve(tx, "ci", "k")
                return await triggers.by_key(tx, "ci", "k")

        async with world.database.transaction() as tx:
            await triggers.reserve(tx, "ci", "k")
            second = await blocked(world.database, found())
            task = await tasks.create(tx, world.principal, "agent", Lane.AGENTS)
            assert task is not None
            await triggers.add(tx, world.principal, "ci", task, account="one", key="k", digest="d")
        row = await second
        assert isinstance(row, triggers.TriggerRow)
        assert row.task_id == task

    async def test_other_keys_and_sources_wait_for_nobody(self, world: World) -> None:
        async with world.database.transaction() as tx, world.database.transaction() as other, asyncio.timeout(5):
            await triggers.reserve(tx, "ci", "k")
            await triggers.reserve(other, "ci", "l")
            await triggers.reserve(other, "shop", "k")


class TestLive:
    async def test_only_triggers_that_are_not_over_count(self, world: World) -> None:
        first, _, third = [await trigger(world) for _ in range(3)]
        await world.queue(dedupe="schedule:1")
        await world.queue()
        async with world.database.connection() as conn:
            assert await triggers.live(conn, 10) == 3
            assert await triggers.live(conn, 2) == 2
        async with world.database.transaction() as tx:
            await tasks.cancel(tx, first)
        await world.do("update tasks set status = 'needs_human_review' where id = $1", third)
        async with world.database.connection() as conn:
            assert await triggers.live(conn, 10) == 2


class TestConversations:
    async def test_one_name_is_one_session_until_it_ends(self, world: World) -> None:
        first, again, other = [await conversation(world, name) for name in ("ci/a", "ci/a", "ci/b")]
        assert first == again
        assert other != first
        await world.do("update sessions set ended_at = now() where id = $1", first)
        assert await conversation(world, "ci/a") != first

    async def test_its_label_never_falls(self, world: World) -> None:
        session = await conversation(world, "ci/a", Label.UNTRUSTED)
        await conversation(world, "ci/a", Label.OWNER)
        assert await world.value("select label from sessions where id = $1", session) == Label.UNTRUSTED

    async def test_two_at_once_meet_in_one_session(self, world: World) -> None:
        async with world.database.transaction() as tx:
            one = await triggers.conversation(tx, world.principal, "ci/a", Label.UNTRUSTED)
            second = await blocked(world.database, conversation(world, "ci/a"))
        assert await second == one


class TestWhoMaySee:
    @pytest.mark.parametrize(
        ("account", "source", "seen"),
        [("one", None, True), ("two", None, False), ("two", "ci", True), ("two", "shop", False), ("", None, False)],
    )
    async def test_it_is_seen_by_its_credential_and_for_its_source(
        self, world: World, account: str, source: str | None, seen: bool
    ) -> None:
        task = await trigger(world, "ci", account="one")
        async with world.database.connection() as conn:
            assert await triggers.sent_by(conn, task, account, source) is seen

    async def test_other_tasks_are_nobodys(self, world: World) -> None:
        async with world.database.connection() as conn:
            assert not await triggers.sent_by(conn, await world.queue(), "one", None)

    async def test_a_member_sees_none_and_makes_none(self, world: World) -> None:
        await trigger(world)
        async with world.database.transaction() as tx:
            member = await principals.add(tx, Role.MEMBER, "Bo", ["fake:2"])
        for statement in (
            "select from triggers",
            "insert into triggers (source) values ('ci')",
            "select from api_tokens",
        ):
            await refused(world, member, statement)
        await refused(world, world.principal, "select from triggers")


async def refused(world: World, principal: PrincipalId, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with world.database.bound(principal).transaction() as tx:
            await tx.execute(statement)


class TestRegistered:
    async def test_each_source_with_a_live_token_and_how_often_it_was_heard(self, world: World) -> None:
        for source in ("shop", "ci", "gone"):
            await tokens.create(world.database, world.principal, f"t {source}", [Scope.TRIGGER], source=source)
        await tokens.create(world.database, world.principal, "unbound", [Scope.TRIGGER])
        await tokens.revoke(world.database, "t gone")
        for _ in range(2):
            await trigger(world, "ci")
        async with world.database.connection() as conn:
            rows = await triggers.registered(conn)
        assert [(row.source, row.triggers, row.last_used_at) for row in rows] == [("ci", 2, None), ("shop", 0, None)]

    async def test_a_token_knows_its_source(self, world: World) -> None:
        _, plain = await tokens.create(world.database, world.principal, "t", [Scope.TRIGGER], source="ci")
        found = await tokens.find(world.database, plain)
        assert found is not None
        assert (found.source, found.scopes) == ("ci", (Scope.TRIGGER,))


class TestReport:
    async def test_a_task_that_is_under_way_has_no_result(self, world: World) -> None:
        task = await trigger(world)
        found = await report(world, task)
        assert (found.id, found.kind, found.status, found.attempts) == (task, "agent", Status.PENDING, 0)
        assert (found.error, found.result, found.delivery) == (None, None, ())
        assert found.created_at == found.updated_at

    async def test_one_that_is_over_has_its_last_words_and_how_they_were_delivered(self, world: World) -> None:
        session = await conversation(world, "ci/a")
        await world.queue(session=session, dedupe=f"{triggers.DEDUPE}1")
        [run] = await world.claim(somebody())
        async with world.database.transaction() as tx:
            for text in ("Let me look.", "All is well."):
                said = AssistantText(text)
                await messages.say(tx, session, world.principal, said, label=Label.UNTRUSTED, task=run.id)
        assert (await report(world, run.id)).result is None
        told = await self._told(world)
        async with world.database.transaction() as tx:
            await tasks.finish(tx, run, Status.COMPLETED, said=told)
        await world.answer("something else in the chat")
        await world.do("update outbox set state = 'sent' where part = 0")
        found = await report(world, run.id)
        assert (found.status, found.result, found.delivery) == (
            Status.COMPLETED,
            "All is well.",
            ("sent", "pending"),
        )

    async def test_in_a_conversation_each_has_its_own_words(self, world: World) -> None:
        session = await conversation(world, "ci/a")
        for name in ("one", "two"):
            await world.queue(session=session, dedupe=f"{triggers.DEDUPE}{name}")
        runs = await world.claim(somebody(), 2)
        async with world.database.transaction() as tx:
            for run, text in zip(runs, ("first", "second"), strict=True):
                said = AssistantText(text)
                await messages.say(tx, session, world.principal, said, label=Label.UNTRUSTED, task=run.id)
                await tasks.finish(tx, run, Status.COMPLETED)
        assert [(await report(world, run.id)).result for run in runs] == ["first", "second"]

    async def test_of_one_that_failed_the_error_is_told(self, world: World) -> None:
        await trigger(world)
        [run] = await world.claim(somebody())
        async with world.database.transaction() as tx:
            await tasks.finish(tx, run, Status.FAILED, error="no model answered")
        found = await report(world, run.id)
        assert (found.status, found.error, found.result) == (Status.FAILED, "no model answered", None)

    async def test_of_one_that_never_was_there_is_none(self, world: World) -> None:
        async with world.database.connection() as conn:
            assert await tasks.report(conn, TaskId(somebody())) is None

    async def _told(self, world: World) -> MessageId:
        told = await world.answer("All is well.")
        async with world.database.transaction() as tx:
            await outbox.put(tx, world.principal, world.address, told, [OutboxPart("All is"), OutboxPart("well.")])
        return told
