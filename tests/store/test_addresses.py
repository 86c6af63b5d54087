from dataclasses import replace
from typing import Any
from uuid import uuid4

from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import SessionId
from gateway.domain.principals import Label
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses, inbox
from gateway.store.transcript import sessions
from tests.store.world import HOME, World, arrival, blocked, fresh


async def add(tx: Connection, world: World, address: Address, *, private: bool = True) -> SessionId:
    session = await sessions.start(tx, world.principal, Label.OWNER)
    await addresses.add(tx, address, world.principal, session, private=private)
    return session


async def heard(tx: Connection, world: World, address: Address) -> None:
    at = await addresses.find(tx, address)
    assert at is not None
    inbound = replace(arrival(id=str(uuid4())), address=address)
    await inbox.enter(tx, inbound, "message", at, fresh(), handled=True)


async def test_an_address_is_found_by_its_four_parts_and_by_its_id(world: World) -> None:
    async with world.database.connection() as conn:
        at = await addresses.find(conn, HOME)
        assert at is not None
        assert (at.address, at.session_id, at.private) == (HOME, world.session, True)
        assert await addresses.get(conn, at.id) == at
        for part in ("channel", "account", "chat", "thread"):
            assert await addresses.find(conn, replace(HOME, **{part: "other"})) is None


async def test_whoever_locks_it_is_alone_with_it(world: World) -> None:
    async def later() -> SessionId:
        async with world.database.transaction() as tx:
            at = await addresses.lock_by_id(tx, world.address)
            return at.session_id

    async with world.database.transaction() as tx:
        assert await addresses.lock(tx, HOME) is not None
        assert await addresses.lock(tx, Address("fake", "bot", "nobody")) is None
        waiting = await blocked(world.database, later())
        successor = await sessions.start(tx, world.principal, Label.OWNER)
        await addresses.move(tx, world.session, successor)
    assert await waiting == successor


async def test_a_new_address_can_be_reserved(world: World) -> None:
    new = Address("fake", "bot", "2")

    async def later() -> bool:
        async with world.database.transaction() as tx:
            await addresses.reserve(tx, new)
            return await addresses.find(tx, new) is not None

    async with world.database.transaction() as tx:
        await addresses.reserve(tx, new)
        waiting = await blocked(world.database, later())
        await add(tx, world, new)
    assert await waiting


async def test_all_addresses_of_a_session_move_together(world: World) -> None:
    second = Address("web", "", "1")
    async with world.database.transaction() as tx:
        await addresses.add(tx, second, world.principal, world.session, private=True)
        elsewhere = await add(tx, world, Address("fake", "bot", "3"))
        successor = await sessions.start(tx, world.principal, Label.OWNER)
        await addresses.move(tx, world.session, successor)
        found = [await sessions.current(tx, a) for a in (HOME, second, Address("fake", "bot", "3"))]
    assert found == [successor, successor, elsewhere]


async def test_something_is_said_where_they_wrote_last_on_any_channel_or_on_one(world: World) -> None:
    page, api, silent = Address("web", "", "1"), Address("api", "key", "1"), Address("quiet", "", "1")
    async with world.database.transaction() as tx:
        assert await addresses.last_spoken_at(tx, world.principal, None) is None
        for address in (page, api, silent):
            await add(tx, world, address)
        for address in (page, HOME, api):
            await heard(tx, world, address)
        asked = (None, "fake", "web", "api", "quiet", "nothing")
        found = [await addresses.last_spoken_at(tx, world.principal, channel) for channel in asked]
        assert await addresses.channels(tx, world.principal) == ["fake", "quiet", "web"]
    assert [at and at.address for at in found] == [HOME, HOME, page, None, None, None]


async def test_a_person_is_told_where_it_was_asked_for_else_on_the_channel_else_in_private(world: World) -> None:
    phone, group, api = Address("fake", "bot", "2"), Address("fake", "bot", "g"), Address("api", "key", "1")
    page, terminal, silent = Address("web", "", "1"), Address("terminal", "local", "1"), Address("web", "", "2")
    async with world.database.transaction() as tx:
        for address in (phone, group, api, page, terminal, silent):
            await add(tx, world, address, private=address is not group)
        known = {each: at.id for each in (silent, phone, group, terminal) if (at := await addresses.find(tx, each))}

        async def told(*read: str, **more: Any) -> Address | None:
            at = await addresses.notification_address(tx, world.principal, read, "terminal", **more)
            return at and at.address

        assert await told("fake", "web") is None
        program = Address("terminal", "3f1c", "1")
        await add(tx, world, program)
        await heard(tx, world, program)
        assert await told("fake", "web", asked=(await addresses.lock(tx, program)).id) is None
        assert await addresses.last_spoken_at(tx, world.principal, None) is None
        assert await addresses.last_spoken_at(tx, world.principal, "terminal") is None
        await heard(tx, world, terminal)
        assert await told("fake", "web") == terminal
        for address in (page, HOME, phone, group, terminal, api):
            await heard(tx, world, address)
        assert await told("fake", "web") == phone
        assert await told("fake", "web", asked=known[silent]) == silent
        assert await told("fake", "web", asked=known[group]) == group
        assert await told("fake", "web", asked=known[terminal]) == phone
        assert await told("fake", "web", asked=known[phone], avoid=known[phone]) == HOME
        assert await told("fake", "web", channel="web") == page
        assert await told("fake", "web", channel="gone") == phone
        assert await told("web", asked=known[phone]) == page
        assert await told(asked=known[phone]) == terminal
