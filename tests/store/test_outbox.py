from uuid import uuid4

from gateway.domain.channels.channel import Button
from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import AddressId, MessageId
from gateway.domain.principals import Label
from gateway.store.delivery import addresses, outbox
from gateway.store.delivery.outbox import OutboxPart, OutboxRow, State
from gateway.store.files import files
from gateway.store.transcript import sessions
from tests.store.world import World


async def put(world: World, *parts: str, at: AddressId | None = None) -> MessageId:
    message = await world.answer("whole")
    async with world.database.transaction() as tx:
        await outbox.put(tx, world.principal, at or world.address, message, [OutboxPart(part) for part in parts])
    return message


async def due(world: World, *, channels: tuple[str, ...] = ("fake",), busy: tuple[AddressId, ...] = ()) -> list[str]:
    return [row.text for row in await rows_due(world, channels=channels, busy=busy)]


async def rows_due(
    world: World, *, channels: tuple[str, ...] = ("fake",), busy: tuple[AddressId, ...] = ()
) -> list[OutboxRow]:
    async with world.database.connection() as conn:
        return await outbox.due(conn, channels, busy, 10)


async def states(world: World) -> list[tuple[str, State]]:
    async with world.database.connection() as conn:
        rows = await conn.fetch("select text, state from outbox order by id")
    return [(row["text"], row["state"]) for row in rows]


async def another_address(world: World) -> AddressId:
    at = Address("fake", "bot", str(uuid4()))
    async with world.database.transaction() as tx:
        session = await sessions.start(tx, world.principal, Label.OWNER)
        await addresses.add(tx, at, world.principal, session, private=True)
        found = await addresses.find(tx, at)
    assert found is not None
    return found.id


async def test_of_many_addresses_those_that_waited_longest_come_first(world: World) -> None:
    for text in ("one", "two", "three"):
        await put(world, text, at=await another_address(world))
    async with world.database.connection() as conn:
        assert [row.text for row in await outbox.due(conn, ["fake"], [], 2)] == ["one", "two"]


async def test_parts_wait_in_order_and_only_the_first_is_due(world: World) -> None:
    message = await put(world, "one", "two")
    await put(world, "three")
    assert await due(world) == ["one"]
    async with world.database.connection() as conn:
        parts = await outbox.of_message(conn, message)
    assert [(row.part, row.text, row.state, row.attempts) for row in parts] == [
        (0, "one", "pending", 0),
        (1, "two", "pending", 0),
    ]


async def test_each_address_has_a_head_of_its_own(world: World) -> None:
    await put(world, "here")
    other = await another_address(world)
    await put(world, "there", at=other)
    assert sorted(await due(world)) == ["here", "there"]
    assert await due(world, busy=(other,)) == ["here"]
    assert await due(world, channels=("telegram",)) == []
    assert await due(world, channels=()) == []


async def test_a_part_on_its_way_holds_back_what_follows(world: World) -> None:
    await put(world, "one", "two")
    [head] = await rows_due(world)
    async with world.database.connection() as conn:
        assert await outbox.mark_sending(conn, head.id)
        assert not await outbox.mark_sending(conn, head.id)
        assert await outbox.due(conn, ["fake"], [], 10) == []
        await outbox.mark_sent(conn, head.id, "p1")
    [row] = await rows_due(world)
    assert row.text == "two"
    [sent, _] = await world.column("select (state, platform_id, attempts, error) from outbox order by id")
    assert sent == ("sent", "p1", 1, None)


async def test_a_delayed_part_waits_with_everything_behind_it(world: World) -> None:
    await put(world, "one", "two")
    [head] = await rows_due(world)
    async with world.database.connection() as conn:
        await outbox.mark_sending(conn, head.id)
        await outbox.delay(conn, head.id, 60, "flood")
    assert await due(world) == []
    await world.do("update outbox set run_at = now() where id = $1", head.id)
    [again] = await rows_due(world)
    assert (again.id, again.attempts, again.error) == (head.id, 1, "flood")


async def test_a_refused_part_takes_the_rest_of_its_message_with_it(world: World) -> None:
    await put(world, "one", "two", "three")
    await put(world, "another")
    [head] = await rows_due(world)
    async with world.database.connection() as conn:
        second = await outbox.mark_sent(conn, head.id, "p1")
        assert second is not None
        await outbox.mark_sending(conn, second.id)
        await outbox.mark_failed(conn, second.id, "blocked")
        dead = await outbox.in_state(conn, "failed")
    assert await states(world) == [("one", "sent"), ("two", "failed"), ("three", "failed"), ("another", "pending")]
    assert {row.error for row in dead} == {"blocked"}
    assert await due(world) == ["another"]


async def test_an_uncertain_part_blocks_nothing(world: World) -> None:
    await put(world, "one", "two")
    [head] = await rows_due(world)
    async with world.database.connection() as conn:
        await outbox.mark_sending(conn, head.id)
        await outbox.mark_uncertain(conn, head.id, "no answer")
        assert not await outbox.is_another_part_uncertain(conn, head)
    [second] = await rows_due(world)
    assert second.text == "two"
    async with world.database.connection() as conn:
        assert await outbox.is_another_part_uncertain(conn, second)


async def test_nothing_that_was_decided_goes_back_to_waiting(world: World) -> None:
    await put(world, "one")
    [head] = await rows_due(world)
    async with world.database.connection() as conn:
        await outbox.mark_sending(conn, head.id)
        await outbox.mark_uncertain(conn, head.id, "no answer")
        await outbox.delay(conn, head.id, 0, "late")
        assert not await outbox.mark_sending(conn, head.id)
    assert await states(world) == [("one", "uncertain")]


async def test_what_a_crash_left_half_sent_is_found_by_channel(world: World) -> None:
    await put(world, "one", "two")
    [head] = await rows_due(world)
    async with world.database.connection() as conn:
        await outbox.mark_sending(conn, head.id)
        assert [row.text for row in await outbox.left_sending(conn, "fake")] == ["one"]
        assert await outbox.left_sending(conn, "telegram") == []


async def test_a_receipt_tells_the_next_part_that_may_go(world: World) -> None:
    await put(world, "one", "two", "three")
    [head] = await rows_due(world)
    async with world.database.connection() as conn:
        second = await outbox.mark_sent(conn, head.id, "p1")
        assert second is not None
        assert second.text == "two"
        await outbox.delay(conn, second.id + 1, 60, "later")
        assert await outbox.mark_sent(conn, second.id, "p2") is None


async def test_a_part_keeps_its_file_its_buttons_and_what_it_answers(world: World) -> None:
    yes, message = Button("Yes \u2713", "/yes"), await world.answer("whole")
    async with world.database.transaction() as tx:
        file = await files.keep(
            tx, world.principal, "a.txt", size=1, mime="", sha256="", label=Label.OWNER, origin="agent"
        )
        parts = [
            OutboxPart("first", buttons=(yes, yes), reply_to="m1"),
            OutboxPart("", file=file.id),
            OutboxPart("last", buttons=(yes,)),
        ]
        await outbox.put(tx, world.principal, world.address, message, parts)
        rows = await outbox.of_message(tx, message)
    assert [OutboxPart(row.text, row.file_id, row.buttons, row.reply_to) for row in rows] == parts


async def test_words_in_place_of_a_file_are_due_at_once_and_before_what_follows(world: World) -> None:
    await put(world, "caption", "later")
    [head] = await rows_due(world)
    async with world.database.connection() as conn:
        await outbox.mark_sending(conn, head.id)
        await outbox.replace_file(conn, head.id, "caption and why", "refused")
    [again] = await rows_due(world)
    assert (again.id, again.text, again.error, again.attempts) == (head.id, "caption and why", "refused", 1)
    async with world.database.connection() as conn:
        await outbox.mark_uncertain(conn, head.id, "no answer")
        await outbox.replace_file(conn, head.id, "too late", "")
    assert await states(world) == [("caption and why", "uncertain"), ("later", "pending")]
