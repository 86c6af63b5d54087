import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime

from gateway.domain.health import ChannelVitals, LoopLag, MemoryUse, Vitals
from tests.flow.path import MEMBER, MessagePath

CONDITION = Vitals(
    LoopLag(worst_ms=12.4, p99_ms=1.0, worst_ever_ms=230.6),
    MemoryUse(used=140 * 2**20, ceiling=128 * 2**20, shedding=True),
    {"telegram": ChannelVitals("open", 75.3), "slack": ChannelVitals("refused: wrong token")},
    unclean_ends=2,
    checkpoints="the last one 3 minutes ago",
    heartbeat="every 30m, next 15:00; 0 beats today, 0 asked a model",
    jobs={"checkpoints": datetime(2026, 11, 22, 14, 5, tzinfo=UTC), "schedules": None},
)


class _NoVectors:
    def __eq__(self, line: object) -> bool:
        return re.fullmatch(r"Search by meaning: pgvector \d\S+, no vectors yet", str(line)) is not None

    __hash__ = object.__hash__


VECTORS = _NoVectors()


def show(path: MessagePath, vitals: Vitals) -> None:
    path.command_runner.services = replace(path.command_runner.services, vitals=lambda: vitals)


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
    assert lines[1:5] == [
        "Model: fake",
        f"Session: {first.session_id}",
        "Queue: 1 running, 0 waiting",
        "Today: $0.0010, 1 model call, 15 tokens",
    ]


async def test_the_owner_also_sees_how_the_gateway_itself_is(path: MessagePath) -> None:
    show(path, CONDITION)
    assert (await path.ask("/status")).split("\n")[5:] == [
        "Event loop: at most 12 ms late in the last minute, 231 ms ever",
        "Memory: 147 MB of 134 MB, shedding load",
        "Channel telegram: open, heard 0:01:15 ago",
        "Channel slack: refused: wrong token",
        "Unplanned restarts: 2 in the last 24 hours",
        "Checkpoints: the last one 3 minutes ago",
        "Heartbeat: every 30m, next 15:00; 0 beats today, 0 asked a model",
        "Next checkpoints: Sun 2026-11-22 14:05 UTC",
        VECTORS,
    ]


async def test_calm_takes_few_words(path: MessagePath) -> None:
    show(path, Vitals(memory=MemoryUse(100 * 2**20, 2000 * 2**20, shedding=False), unclean_ends=1))
    assert (await path.ask("/status")).split("\n")[5:] == [
        "Memory: 105 MB of 2.1 GB",
        "Unplanned restarts: 1 in the last 24 hours",
        VECTORS,
    ]


async def test_a_member_sees_neither_the_owners_queue_nor_costs_nor_the_gateways_condition(path: MessagePath) -> None:
    show(path, CONDITION)
    async with path.working():
        await path.tell("/status", chat=MEMBER, sender=MEMBER)
        [shown] = await path.channel.until(bool)
    assert [line.partition(" ")[0] for line in shown.split("\n")] == ["Up", "Model:", "Session:"]
