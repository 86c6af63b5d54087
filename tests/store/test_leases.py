import asyncio

from gateway.domain.ids import InstanceId
from gateway.store.connection.pool import Database
from gateway.store.work import instances
from tests.store.world import somebody


async def take(database: Database, holder: InstanceId, seconds: float = 60) -> bool:
    async with database.connection() as conn:
        return await instances.take_lease(conn, "gateway", holder, seconds)


async def test_a_lease_has_one_holder_who_may_renew_it(database: Database) -> None:
    first, second = somebody(), somebody()
    assert [await take(database, who) for who in (first, second, first)] == [True, False, True]


async def test_of_many_who_reach_for_it_at_once_one_gets_it(database: Database) -> None:
    assert sum(await asyncio.gather(*(take(database, somebody()) for _ in range(20)))) == 1


async def test_an_expired_lease_is_anybodys(database: Database) -> None:
    assert await take(database, somebody(), -1)
    assert await take(database, somebody())


async def test_only_its_holder_lets_it_go(database: Database) -> None:
    first, second = somebody(), somebody()
    await take(database, first)
    async with database.connection() as conn:
        await instances.drop_lease(conn, "gateway", second)
        assert not await take(database, second)
        await instances.drop_lease(conn, "gateway", first)
    assert await take(database, second)
