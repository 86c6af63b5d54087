"""`python -m benchmarks.channels`: a thousand chats at once, and a burst of a thousand messages beside the owner.

The gateway is the real one in a process of its own; the messenger and the model are servers on this machine.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.model import MockModel, mock_model
from benchmarks.people import People
from benchmarks.processes import pss_mb
from benchmarks.statistics import p95
from tests.journeys.process import OWNER, GatewayProcess, configured

CHATS = 1000
BURST = 1000
BURST_CHATS = 20
OWNERS_TURNS = 20
LATENCY_MS = 200


@dataclass(frozen=True, slots=True)
class Crowd:
    """A thousand people write at the same moment."""

    answered: int
    all_after_s: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Burst:
    """The owner's turns, alone and while twenty members pour in a thousand messages."""

    alone_p95_s: float
    beside_p95_s: float
    answered: int
    """Of the burst's chats, those that got an answer behind their last message."""
    memory_mb: float


async def measure(home: Path, people: People, model: MockModel) -> tuple[Crowd, Burst]:
    """About a minute."""
    gateway = GatewayProcess(home, fresh=True)
    config = configured(people.telegram)
    config["channels"]["telegram"]["access"] = "open"
    providers = {"openai": {"api_key": "sk-of-the-owner", "base_url": model.base_url}}
    config["models"] = {"primary": "openai/mock-model", "providers": providers}
    config["budgets"] = {"run_usd": None, "day_usd": None, "month_usd": None}
    gateway.configure(config)
    try:
        await gateway.start()
        await model.take(LATENCY_MS)
        await people.say(OWNER)
        return await _crowd(gateway, people), await _burst(gateway, people)
    finally:
        await gateway.close()


async def _crowd(gateway: GatewayProcess, people: People) -> Crowd:
    began = perf_counter()
    talk = await people.talk(range(10_000, 10_000 + CHATS), 1)
    return Crowd(len(talk.turns), perf_counter() - began, pss_mb(gateway.running.pid))


async def _burst(gateway: GatewayProcess, people: People) -> Burst:
    alone = await people.talk([OWNER], OWNERS_TURNS)
    pouring = asyncio.create_task(_pour(people, range(20_000, 20_000 + BURST_CHATS)))
    await asyncio.sleep(0)
    beside = await people.talk([OWNER], OWNERS_TURNS)
    return Burst(p95(alone.turns), p95(beside.turns), await pouring, pss_mb(gateway.running.pid))


async def _pour(people: People, chats: Sequence[int]) -> int:
    """Everything at once; who said many things in a row may get one answer for all of them."""
    for number in range(BURST - len(chats)):
        people.telegram.say(f"message {number}", chats[number % len(chats)])
    return len((await people.talk(chats, 1)).turns)


async def run() -> tuple[Crowd, Burst]:
    people = People()
    with tempfile.TemporaryDirectory(prefix="supaclaw-bench-") as home:
        async with people.telegram, mock_model() as model:
            return await measure(Path(home), people, model)


def main() -> None:
    crowd, burst = asyncio.run(run())
    print(f"{CHATS:,} chats at once: {crowd.answered:,} answered, the last after {crowd.all_after_s:.1f} s,")
    print(f"  gateway at {crowd.memory_mb:.0f} MB")
    print(f"a burst of {BURST:,} messages from {BURST_CHATS} chats: {burst.answered} of {BURST_CHATS} chats answered,")
    print(
        f"  the owner's turn, p95: {burst.beside_p95_s:.2f} s (alone {burst.alone_p95_s:.2f} s; the model takes 0.2 s),"
    )
    print(f"  gateway at {burst.memory_mb:.0f} MB")


if __name__ == "__main__":
    main()
