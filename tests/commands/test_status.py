import asyncio
import re

from tests.flow.path import MEMBER, MessagePath


async def test_it_shows_the_gateway_at_a_glance(path: MessagePath) -> None:
    async with path.working():
        first = await path.tell("hello")
        await path.answer(first)
        path.model.gate = asyncio.Event()
        path.model.called.clear()
        await path.tell("busy", chat=MEMBER, sender=MEMBER)
        await path.model.called.wait()
        lines = (await path.ask("/status")).split("\n")
        path.model.gate.set()
    assert re.fullmatch(r"Up \d+:\d\d:\d\d", lines[0])
    assert lines[1:] == [
        "Model: fake",
        f"Session: {first.session_id}",
        "Queue: 1 running, 0 waiting",
        "Today: $0.0010, 1 model call, 15 tokens",
    ]


async def test_a_member_sees_neither_the_owners_queue_nor_costs(path: MessagePath) -> None:
    async with path.working():
        await path.tell("/status", chat=MEMBER, sender=MEMBER)
        [shown] = await path.channel.until(bool)
    assert [line.partition(" ")[0] for line in shown.split("\n")] == ["Up", "Model:", "Session:"]
