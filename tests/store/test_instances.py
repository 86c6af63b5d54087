from gateway.domain.ids import InstanceId
from gateway.store.connection.pool import Database
from gateway.store.work import instances
from gateway.store.work.instances import Kind
from tests.store.world import somebody


async def machine(database: Database, name: str, kind: Kind = "gateway", *, lives: bool = True) -> InstanceId:
    me = somebody()
    async with database.connection() as conn:
        await instances.enter(conn, me, name, kind)
        await instances.take_lease(conn, instances.life_lease(me), me, 60 if lives else -60)
    return me


async def days_pass(database: Database, days: int) -> None:
    async with database.connection() as conn:
        await conn.execute("update leases set expires_at = expires_at - $1 * interval '1 day'", days)
        await conn.execute("update instances set started_at = started_at - $1 * interval '1 day'", days)


async def test_what_lies_on_a_machine_stays_its_own_until_it_is_gone_for_long_or_forgotten(database: Database) -> None:
    first, second = await machine(database, "first"), await machine(database, "second")
    async with database.transaction() as tx:
        assert await instances.home(tx, "workspace", first) is None
        assert await instances.settle(tx, "workspace", first) == ""
        assert await instances.settle(tx, "workspace", second, gone=0.0) == "first"
        assert await instances.settle(tx, "login", first) == ""
        assert await instances.forget(tx, "first") == 0
    async with database.transaction() as tx:
        await instances.drop_lease(tx, instances.life_lease(first), first)
        await tx.execute("update instances set stopped_at = now() - interval '9 minutes' where id = $1", first)
        assert await instances.settle(tx, "workspace", second, gone=600.0) == "first"
        await tx.execute("update instances set stopped_at = now() - interval '11 minutes', started_at = '-infinity'")
        assert await instances.settle(tx, "workspace", second, gone=600.0) == ""
        assert await instances.settle(tx, "login", second) == "first"
        assert await instances.forget(tx, "first") == 1
        assert await instances.settle(tx, "login", second) == ""


async def test_one_that_stops_is_known_if_something_lies_there(database: Database) -> None:
    first, second = await machine(database, "first"), await machine(database, "second", "worker")
    async with database.transaction() as tx:
        await instances.settle(tx, "workspace", first)
        for each in (first, second):
            await instances.drop_lease(tx, instances.life_lease(each), each)
            await instances.leave(tx, each)
        [left] = await instances.every(tx)
    assert (left.name, left.state, left.told) == ("first", "stopped", "gateway, stopped: workspace (files)")


async def test_the_long_dead_are_forgotten_but_for_those_with_something_in_their_files(database: Database) -> None:
    home = await machine(database, "home", lives=False)
    await machine(database, "worker", "worker", lives=False)
    await machine(database, "gateway", lives=False)
    async with database.connection() as conn:
        await instances.settle(conn, "workspace", home)
    for days, left in ((2, {"home", "gateway", "new2"}), (40, {"home", "new40"})):
        await days_pass(database, days)
        await machine(database, f"new{days}")
        async with database.connection() as conn:
            await conn.execute(
                "update leases set expires_at = now() + interval '1 h' from instances i "
                "where holder = i.id and i.name like 'new%'"
            )
            assert {each.name for each in await instances.every(conn)} == left
