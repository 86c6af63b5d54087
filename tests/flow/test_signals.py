import asyncio

from gateway.flow.signals import Wakeup


async def test_a_call_since_the_last_look_ends_the_rest_at_once() -> None:
    wakeup = Wakeup()
    wakeup.clear()
    wakeup.set()
    async with asyncio.timeout(5):
        await wakeup.wait(3600)


async def test_a_call_before_the_look_is_over_with_it() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.clear()
    rest = asyncio.create_task(wakeup.wait(3600))
    await asyncio.sleep(0)
    assert not rest.done()
    wakeup.set()
    async with asyncio.timeout(5):
        await rest


async def test_the_rest_ends_without_a_call() -> None:
    async with asyncio.timeout(5):
        await Wakeup().wait(0.001)
