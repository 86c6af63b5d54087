import asyncio

import pytest

from gateway.domain.channels.routing import Decision, Edit, Ignore, RunCommand, StartTurn
from gateway.domain.conversation.inbound import Inbound
from gateway.domain.ids import InboxId
from gateway.store.delivery import addresses, inbox
from gateway.store.delivery.inbox import Kind
from tests.store.world import World, arrival, fresh


async def enter(world: World, inbound: Inbound, kind: Kind = "message", *, handled: bool = True) -> InboxId | None:
    async with world.database.transaction() as tx:
        at = await addresses.get(tx, world.address)
        return await inbox.enter(tx, inbound, kind, at, fresh(), handled=handled)


@pytest.mark.parametrize(
    ("decision", "kind"),
    [
        (RunCommand("new", ""), "command"),
        (Edit("m1"), "edit"),
        (StartTurn(), "message"),
        (Ignore("empty"), "message"),
    ],
)
def test_an_arrival_is_entered_by_what_is_to_be_done(decision: Decision, kind: Kind) -> None:
    assert inbox.kind_of(decision) == kind


async def test_the_same_thing_is_entered_once_even_when_it_comes_fifty_times_at_once(world: World) -> None:
    ids = await asyncio.gather(*(enter(world, arrival()) for _ in range(50)))
    [id] = [id for id in ids if id is not None]
    async with world.database.connection() as conn:
        first = await inbox.find_duplicate(conn, arrival())
    assert first is not None
    assert first.id == id


async def test_another_chats_message_of_the_same_number_is_another(world: World) -> None:
    assert await enter(world, arrival()) is not None
    async with world.database.connection() as conn:
        assert await inbox.find_duplicate(conn, arrival(id="m2")) is None
    assert await enter(world, arrival(id="m2")) is not None


async def test_a_message_is_kept_in_its_own_row_only(world: World) -> None:
    kept = [await enter(world, arrival(id=kind), kind) for kind in ("message", "edit", "command")]
    async with world.database.connection() as conn:
        texts = [(await inbox.get(conn, id)).text for id in kept if id is not None]
    assert texts == ["", "hello", "hello"]


async def test_a_command_is_open_until_its_effect_is_committed(world: World) -> None:
    done = await enter(world, arrival(id="m1"))
    first = await enter(world, arrival("/new", id="m2"), "command", handled=False)
    second = await enter(world, arrival("/ping", id="m3"), "command", handled=False)
    assert done is not None
    assert first is not None
    answer = await world.answer("New session started.")
    async with world.database.transaction() as tx:
        assert not await inbox.still_open(tx, done)
        assert await inbox.open_commands(tx) == [first, second]
        assert await inbox.still_open(tx, first)
        await inbox.mark_handled(tx, first, answer)
        assert await inbox.open_commands(tx) == [second]
        assert not await inbox.still_open(tx, first)
        assert (await inbox.get(tx, first)).message_id == answer


async def test_an_arrival_knows_the_message_it_became(world: World) -> None:
    id, message = await enter(world, arrival()), await world.ask("hello")
    assert id is not None
    async with world.database.transaction() as tx:
        await inbox.set_message(tx, id, message)
        assert (await inbox.get(tx, id)).message_id == message


async def test_no_text_is_refused(world: World) -> None:
    id = await enter(world, arrival("/new \x00\ud800"), "command", handled=False)
    assert id is not None
    async with world.database.connection() as conn:
        assert (await inbox.get(conn, id)).text == "/new ?"
