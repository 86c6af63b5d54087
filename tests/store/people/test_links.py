import asyncio

from gateway.domain.people.credentials import CodeRefusal
from gateway.store.delivery import addresses
from gateway.store.people import accounts
from gateway.store.people.accounts import LinkRow
from tests.store.world import World


async def offered(world: World, code: str) -> None:
    async with world.database.transaction() as tx:
        await accounts.offer(tx, await addresses.get(tx, world.address), code)


async def redeemed(world: World, code: str, who: str = "fake:2") -> LinkRow | CodeRefusal:
    return await world.database.run(lambda tx: accounts.redeem(tx, who, code))


async def test_a_code_joins_once_whoever_is_first(world: World) -> None:
    await offered(world, "ABCDEFGH")
    outcomes = await asyncio.gather(*(redeemed(world, "ABCDEFGH", f"fake:{n}") for n in range(5)))
    assert sorted(map(str, outcomes)).count(str(LinkRow(world.principal, world.address))) == 1
    assert outcomes.count(CodeRefusal.WRONG) == 4


async def test_a_chat_has_one_code_at_a_time_for_ten_minutes(world: World) -> None:
    await offered(world, "ABCDEFGH")
    await offered(world, "22222222")
    assert await redeemed(world, "ABCDEFGH") is CodeRefusal.WRONG
    assert await world.value("select expires_at - now() <= interval '10 minutes' from links")
    await world.do("update links set expires_at = now()")
    assert await redeemed(world, "22222222") is CodeRefusal.WRONG


async def test_who_guesses_too_often_is_not_told_a_right_one_from_a_wrong_one(world: World) -> None:
    await offered(world, "ABCDEFGH")
    assert [await redeemed(world, "") for _ in range(5)] == [CodeRefusal.WRONG] * 5
    assert await redeemed(world, "ABCDEFGH") is CodeRefusal.LOCKED
    assert await redeemed(world, "ABCDEFGH", "fake:3") == LinkRow(world.principal, world.address)
