"""A model that never ends: whatever it sends, /stop works, the others are answered, and the memory comes back."""

import asyncio
import random
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import psutil
import pytest

from tests.chaos.conftest import FULL, Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Ledger
from tests.chaos.people import Telegrammers, crowd
from tests.fakes.endless_models import DRIPPED, HELD, ONCE, STREAMS
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess

MB = 1024 * 1024
ENDLESS = (*STREAMS, *HELD, *DRIPPED)
QUICK = ("words", "wide-calls", "gzip")
RETRIED = ("surrogates", "nested-event", "digits-event", "not-utf8", "calls-65")
"""No answer, but a failed try after another."""
WATCHED = 3.0 if FULL else 0.5
SLACK_MB = 4
"""What a turn in a new chat keeps."""


@dataclass
class Figures:
    """Of one case: in seconds and MB."""

    case: str
    before: float
    health: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    other: float = 0.0
    stop: float = 0.0
    after: float = 0.0

    def at(self, percent: int) -> float:
        """Of the latencies of /health."""
        ranked = sorted(self.health) or [0.0]
        return ranked[(len(ranked) - 1) * percent // 100]

    def __str__(self) -> str:
        return (
            f"{self.case:22} memory {self.before:4.0f} > {max(self.memory, default=0):4.0f} > {self.after:4.0f} MB, "
            f"/health p50 {self.at(50) * 1000:4.0f} p95 {self.at(95) * 1000:4.0f} max {self.at(100) * 1000:4.0f} ms, "
            f"other chat {self.other:5.2f} s, /stop {self.stop:5.2f} s"
        )


@asynccontextmanager
async def endless() -> AsyncIterator[str]:
    """The address of the server, in a process of its own."""
    server = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.fakes.endless_models", stdout=PIPE)
    assert server.stdout is not None
    try:
        yield (await server.stdout.readline()).decode().strip()
    finally:
        server.kill()
        await server.wait()


@dataclass
class Scene:
    """A gateway whose model answers as it is told to in `endless:<case>`."""

    process: GatewayProcess
    telegram: FakeTelegram
    people: Telegrammers
    ledger: Ledger

    @property
    def memory(self) -> float:
        return float(psutil.Process(self.process.running.pid).memory_info().rss) / MB

    def shown(self, chat: int) -> list[str]:
        return [sent.text for sent in self.telegram.sent if sent.chat == chat]

    async def answered(self) -> float:
        """Seconds until another chat is answered."""
        began = time.monotonic()
        words = f"fin{self.people.say(OWNER).key[2:]}"
        await self.telegram.wait_for(lambda tg: any(words in sent.text for sent in tg.sent))
        return time.monotonic() - began

    async def suffer(self, case: str, chat: int) -> Figures:
        """One case in a chat of its own, watched for a while, then stopped."""
        figures = Figures(case, self.memory)
        watching = asyncio.create_task(self._watch(figures))
        self.people.say(chat, f"endless:{case}")
        await asyncio.sleep(0.3)
        figures.other = await self.answered()
        await asyncio.sleep(WATCHED)
        before, began = len(self.shown(chat)), time.monotonic()
        self.people.command("/stop", chat)
        await self.telegram.wait_for(lambda _: len(self.shown(chat)) > before, 90)
        figures.stop = time.monotonic() - began
        assert await self.ledger.settled(60)
        watching.cancel()
        await asyncio.wait([watching])
        figures.after = self.memory
        print(figures, [text[:80] for text in self.shown(chat)], flush=True)
        return figures

    async def _watch(self, figures: Figures) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=90) as client:
            while True:
                began = time.perf_counter()
                assert (await client.get(f"{self.process.url}/health")).status_code == 200
                figures.health.append(time.perf_counter() - began)
                figures.memory.append(self.memory)
                await asyncio.sleep(0.05)


@pytest.fixture
async def scene(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random
) -> AsyncIterator[Scene]:
    async with endless() as address:
        chats = range(OWNER, OWNER + 1 + len(ENDLESS))
        config = crowd(telegram, models, chats)
        config["models"]["providers"]["openai"]["base_url"] = address
        process.configure(config)
        await process.start()
        people = Telegrammers(telegram, chance, chats, tools=0.0)
        yield Scene(process, telegram, people, Ledger(process, telegram))
        await process.close()


@pytest.mark.fault(Fault.ENDLESS)
@pytest.mark.parametrize("cases", [QUICK, pytest.param(ENDLESS, marks=pytest.mark.chaos)], ids=["quick", "all"])
async def test_a_model_that_never_ends_harms_nobody(scene: Scene, judge: Judge, cases: Sequence[str]) -> None:
    for _ in range(5):
        await scene.answered()
    begun = scene.memory
    figures = [await scene.suffer(case, OWNER + 1 + place) for place, case in enumerate(cases)]
    most, after = max(max(each.memory) for each in figures), figures[-1].after
    stop, health = max(each.stop for each in figures), max(each.at(95) for each in figures)
    note = f"/stop at most {stop:.2f} s, /health p95 {health * 1000:.0f} ms, {begun:.0f} > {most:.0f} > {after:.0f} MB"
    judge(Fault.ENDLESS, await scene.ledger.count(scene.people.said, tries=len(cases)), note)
    last = {scene.shown(OWNER + 1 + place)[-1] for place in range(len(cases))}
    assert last <= {"Stopped.", "Nothing is running."}
    assert all(each.after < each.before * 1.1 + SLACK_MB for each in figures)
    assert most < begun * 1.4
    if FULL:
        assert stop < 1
        assert health < 0.2


@pytest.mark.chaos
@pytest.mark.fault(Fault.ENDLESS)
async def test_an_absurd_answer_is_an_answer(scene: Scene, judge: Judge) -> None:
    cases = [case for case in ONCE if case not in RETRIED]
    for place, case in enumerate(cases):
        scene.people.say(OWNER + 1 + place, f"endless:{case}")
        await scene.telegram.wait_for(lambda _, chat=OWNER + 1 + place: bool(scene.shown(chat)))
    assert await scene.ledger.settled(60)
    outcome = await scene.ledger.count(scene.people.said, tries=len(cases))
    judge(Fault.ENDLESS, outcome)
    assert outcome.given_up == 0
    assert not any("run.failed" in line for line in scene.process.told)
