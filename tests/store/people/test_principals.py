import asyncio
from dataclasses import replace

import asyncpg
import pytest

from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Principal, Role
from gateway.store.people import principals
from tests.store.world import World


async def ensure(world: World, name: str, identity: str) -> PrincipalId:
    async with world.database.transaction() as tx:
        return await principals.ensure_member(tx, name, identity)


async def test_there_is_one_owner(world: World) -> None:
    async with world.database.connection() as conn:
        assert await principals.get(conn, world.principal) == Principal(world.principal, Role.OWNER, "Ada")
        with pytest.raises(asyncpg.UniqueViolationError):
            await principals.add(conn, Role.OWNER, "Eve", [])


async def test_a_member_is_made_once_however_often_it_is_first_seen(world: World) -> None:
    made = await asyncio.gather(*(ensure(world, "Bob", "fake:2") for _ in range(20)))
    assert len(set(made)) == 1
    assert await ensure(world, "Robert", "fake:2") == made[0]
    async with world.database.connection() as conn:
        assert await principals.get(conn, made[0]) == Principal(made[0], Role.MEMBER, "Bob")


async def test_a_name_is_kept_whatever_it_is(world: World) -> None:
    hostile = await ensure(world, "\x00\ud800 Bob\u202e\n" * 1000, "fake:2")
    nameless = await ensure(world, "\u200b", "fake:3")
    async with world.database.connection() as conn:
        assert len((await principals.get(conn, hostile)).name) <= principals.NAME
        assert (await principals.get(conn, nameless)).name == "fake:3"


async def test_an_account_is_one_persons_whoever_is_first(world: World) -> None:
    async def join(who: PrincipalId) -> bool:
        async with world.database.transaction() as tx:
            return await principals.add_identity(tx, who, "slack:U1")

    bob = await ensure(world, "Bob", "fake:2")
    assert sum(await asyncio.gather(*(join(who) for who in (bob, world.principal) * 5))) == 1
    async with world.database.connection() as conn:
        assert (await principals.linked(conn) == []) is (await principals.find(conn, "slack:U1") == world.principal)


async def test_the_owner_can_be_changed_while_nobody_else_looks(world: World) -> None:
    async with world.database.transaction() as tx:
        owner = await principals.lock_owner(tx)
        await principals.update(tx, replace(owner, name="Eve", identities=("fake:9", "web:1")))
        changed = await principals.owner(tx)
    assert changed is not None
    assert (changed.id, changed.name, changed.identities) == (world.principal, "Eve", ("fake:9", "web:1"))


async def test_a_principal_is_known_by_its_identities(world: World) -> None:
    bob = await ensure(world, "Bob", "fake:2")
    async with world.database.transaction() as tx:
        await principals.add_identity(tx, bob, "slack:U2")
        assert await principals.identities(tx, bob) == ("fake:2", "slack:U2")


async def test_the_names_of_several_are_read_at_once(world: World) -> None:
    async with world.database.transaction() as tx:
        ada = await principals.ensure_member(tx, "Ada", "telegram:1")
        bo = await principals.ensure_member(tx, "Bo", "telegram:2")
        await principals.ensure_member(tx, "Cy", "telegram:3")
        assert await principals.names(tx, {ada, bo}) == {ada: "Ada", bo: "Bo"}
        assert await principals.names(tx, ()) == {}
