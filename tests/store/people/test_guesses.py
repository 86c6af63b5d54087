import asyncio

from gateway.store.people import guesses
from tests.store.world import World


async def guess(world: World, who: str) -> bool:
    """Whether it was still counted as one."""
    async with world.database.transaction() as tx:
        if await guesses.locked(tx, who):
            return False
        await guesses.wrong(tx, who)
        return True


async def test_the_sixth_is_not_heard_and_others_are(world: World) -> None:
    assert [await guess(world, "a") for _ in range(7)] == [True] * 5 + [False] * 2
    assert await guess(world, "b")


async def test_those_made_at_once_count_one_after_another(world: World) -> None:
    assert sum(await asyncio.gather(*(guess(world, "a") for _ in range(9)))) == guesses.ALLOWED


async def test_the_last_one_starts_the_ten_minutes_and_then_all_is_forgotten(world: World) -> None:
    await guess(world, "a")
    await world.do("update guesses set until = now() + interval '1 second'")
    for _ in range(4):
        await guess(world, "a")
    assert await world.value("select until > now() + interval '9 minutes' from guesses")
    await world.do("update guesses set until = now()")
    assert await guess(world, "a")
    assert await world.column("select wrong from guesses") == [1]
