from datetime import timedelta

import pytest

from gateway.domain.conversation.inbound import Attachment
from gateway.domain.ids import FileId, MessageId
from gateway.domain.principals import Label, Role
from gateway.domain.work.tasks import Lane
from gateway.store.files import attachments, files
from gateway.store.files.files import FileRow
from gateway.store.people import principals
from gateway.store.transcript import messages, sessions, unread
from gateway.store.work import tasks
from tests.store.world import World, somebody

ANNOUNCED = Attachment("r1", "a.pdf", "application/pdf", 12)


async def announce(world: World, message: MessageId, *announced: Attachment) -> None:
    async with world.database.transaction() as tx:
        await attachments.add(tx, world.principal, message, "fake", announced or (ANNOUNCED,))


async def kept(world: World, path: str = "uploads/d/a.pdf", origin: str = "fake") -> FileRow:
    async with world.database.transaction() as tx:
        return await files.keep(
            tx, world.principal, path, size=9, mime="x/y", sha256=path, label=Label.UNTRUSTED, origin=origin
        )


async def settle(world: World, message: MessageId, file: FileRow | None = None) -> FileId:
    file = file or await kept(world)
    async with world.database.transaction() as tx:
        for each in await attachments.incomplete(tx, message):
            await attachments.mark_stored(tx, each.id, file.id)
        await files.derived(tx, file.id, mime="application/pdf", text_path="t", pages=2, description="a report")
    return file.id


async def take(world: World, *, joining: bool = False) -> list[str]:
    async with world.database.transaction() as tx:
        await sessions.lock(tx, world.session)
        return [row.text for row in await unread.take(tx, world.session, joining=joining)]


async def left(world: World, message: MessageId) -> list[str]:
    async with world.database.connection() as conn:
        return [each.ref for each in await attachments.incomplete(conn, message)]


class TestAnnounced:
    async def test_they_are_to_be_fetched_in_order(self, world: World) -> None:
        message = await world.ask("look")
        await announce(world, message, ANNOUNCED, Attachment("r2"))
        await announce(world, message, Attachment("r3\x00"))
        async with world.database.connection() as conn:
            found = await attachments.incomplete(conn, message)
        assert [each.announced for each in found] == [ANNOUNCED, Attachment("r2"), Attachment("r3")]
        assert await world.column("select place from attachments order by place") == [0, 1, 2]

    async def test_one_that_is_here_and_not_read_is_left_to_do(self, world: World) -> None:
        message = await world.ask("look")
        await announce(world, message)
        file = await kept(world)
        await world.do("update attachments set state = 'stored', file_id = $1", file.id)
        assert await left(world, message) == ["r1"]
        await settle(world, message, file)
        assert await left(world, message) == []

    async def test_one_that_failed_is_done_with(self, world: World) -> None:
        message = await world.ask("look")
        await announce(world, message)
        async with world.database.transaction() as tx:
            [each] = await attachments.incomplete(tx, message)
            await attachments.mark_failed(tx, each.id, "gone")
            await attachments.mark_stored(tx, each.id, (await kept(world)).id)
        assert await left(world, message) == []
        assert await world.value("select state from attachments") == "failed"


class TestKept:
    async def test_a_file_is_named_by_its_id(self, world: World) -> None:
        message, file = await world.ask("look"), await kept(world)
        async with world.database.transaction() as tx:
            named = [Attachment(str(file.id), "b.pdf"), Attachment("nonsense"), Attachment(str(somebody()))]
            await attachments.add_kept(tx, world.principal, message, "web", named)
        assert await world.column("select file_id from attachments") == [file.id]

    async def test_anothers_file_is_not_heard(self, world: World) -> None:
        file = await kept(world)
        async with world.database.transaction() as tx:
            other = await principals.add(tx, Role.MEMBER, "Bob", [])
            await attachments.add_kept(tx, other, await world.ask("look"), "web", [Attachment(str(file.id))])
        assert await world.value("select count(*) from attachments") == 0


class TestWaiting:
    async def test_a_message_stays_unread_until_its_files_are_there(self, world: World) -> None:
        await world.ask("before")
        message = await world.ask("look")
        await announce(world, message)
        await world.ask("after")
        assert await take(world) == ["before"]
        assert await take(world, joining=True) == []
        await settle(world, message)
        assert await take(world, joining=True) == ["look", "after"]

    async def test_it_waits_no_longer_than_its_time(self, world: World) -> None:
        message = await world.ask("look")
        await announce(world, message)
        await world.do("update messages set created_at = now() - $1::interval", unread.PATIENCE - timedelta(seconds=5))
        assert await take(world) == []
        await world.do("update messages set created_at = now() - $1::interval", unread.PATIENCE)
        assert await take(world) == ["look"]

    async def test_its_turn_waits_for_the_rest_of_that_time(self, world: World) -> None:
        await announce(world, await world.ask("look"))
        await world.do("update messages set created_at = now() - interval '80 seconds'")
        async with world.database.transaction() as tx:
            await tasks.create_chat(tx, world.principal, world.session, somebody())
            [run] = await tasks.claim(tx, somebody(), {Lane.CHAT: 1})
            assert await tasks.open_chat(tx, run, world.session) is None
            left = await tx.fetchval("select run_at - now() from tasks")
        assert timedelta(0) < left <= timedelta(seconds=10)


class TestAlbums:
    async def join(self, world: World, text: str, album: str = "al") -> MessageId | None:
        async with world.database.transaction() as tx:
            return await unread.join(tx, world.address, album, text, Label.OWNER)

    async def test_a_part_joins_what_is_unread(self, world: World) -> None:
        first = await world.ask("one", album="al")
        assert await self.join(world, "two") == first
        assert await self.join(world, "") == first
        assert await world.value("select text from messages") == "one\ntwo"
        assert await world.value("select tokens from messages") == 3

    async def test_there_is_nothing_to_join(self, world: World) -> None:
        assert await self.join(world, "two") is None
        await world.ask("other", album="other")
        assert await self.join(world, "two") is None
        await world.ask("one", album="al")
        await take(world)
        assert await self.join(world, "two") is None


class TestShown:
    async def rows(self, world: World) -> list[messages.MessageRow]:
        async with world.database.connection() as conn:
            return await attachments.with_attachments(conn, await messages.transcript(conn, world.session))

    async def test_messages_have_their_files_with_them(self, world: World) -> None:
        message = await world.ask("look")
        await announce(world, message)
        file = await settle(world, message)
        await take(world)
        [row] = await self.rows(world)
        [attached] = row.attached
        assert (attached.id, attached.name, attached.path, attached.text_path) == (
            file,
            "a.pdf",
            "uploads/d/a.pdf",
            "t",
        )
        assert (attached.mime, attached.size, attached.pages, attached.problem) == ("application/pdf", 9, 2, "")
        assert row.size > messages.TEXT_TOKENS

    @pytest.mark.parametrize(
        ("state", "problem"),
        [("waiting", "it has not arrived yet"), ("failed", "gone"), ("stored", "it has not been read yet")],
    )
    async def test_one_that_is_not_there_says_why(self, world: World, state: str, problem: str) -> None:
        message = await world.ask("look")
        await announce(world, message, Attachment("r1"))
        file = await kept(world) if state == "stored" else None
        error = "gone" if state == "failed" else ""
        await world.do("update attachments set state = $1, error = $2, file_id = $3", state, error, file and file.id)
        await world.do("update messages set created_at = now() - interval '1 hour'")
        await take(world)
        [row] = await self.rows(world)
        assert [(each.state, each.problem) for each in row.attached] == [(state, problem)]
        assert row.attached[0].name == ("a.pdf" if file else "file")

    async def test_the_list_has_each_file_once_and_the_newest(self, world: World) -> None:
        for name in ("a", "b", "c", "a"):
            message = await world.ask(name)
            await announce(world, message, Attachment("r", f"{name}.pdf"))
            await settle(world, message, await kept(world, f"uploads/{name}"))
        await take(world)
        failed = await world.ask("x")
        await announce(world, failed)
        async with world.database.connection() as conn:
            [*_, last] = taken = await messages.transcript(conn, world.session)
            rows, listed, total = await attachments.of_turn(conn, world.session, taken, 2)
            assert ([each.name for each in listed], total) == (["c.pdf", "a.pdf"], 3)
            assert [[each.name for each in row.attached] for row in rows] == [
                ["a.pdf"],
                ["b.pdf"],
                ["c.pdf"],
                ["a.pdf"],
            ]
            assert [row.id for row in rows] == [row.id for row in taken]
            [row], listed, _ = await attachments.of_turn(conn, world.session, [last], 0)
            assert ([each.name for each in row.attached], listed) == (["a.pdf"], [])

    async def test_a_file_the_agent_sent_is_listed_too(self, world: World) -> None:
        answer, file = await world.answer("here"), await kept(world, "notes/a.md", "agent")
        async with world.database.transaction() as tx:
            await attachments.add_kept(tx, world.principal, answer, "fake", [file.announced])
            _, listed, _ = await attachments.of_turn(tx, world.session, [], 50)
        assert [(each.name, each.problem) for each in listed] == [("a.md", "")]


class TestHostile:
    async def test_no_claim_of_a_platform_is_too_large_to_be_stored(self, world: World) -> None:
        claimed = Attachment("r", "a" * 100_000, "m" * 100_000, 2**64 - 1)
        await announce(world, await world.ask("look"), claimed)
        assert await world.column("select length(name) + length(mime) from attachments") == [2 * attachments.LONGEST]
        assert await world.column("select size from attachments") == [2**63 - 1]
