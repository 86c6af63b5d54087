"""A model that never ends: whatever it sends, /stop works, the others are answered, and the memory comes back."""

import asyncio
import os
import random
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import psutil
import pytest

from tests.chaos.conftest import Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Ledger
from tests.chaos.people import Telegrammers, crowd
from tests.fakes.endless_models import CASES
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess

MB = 1024 * 1024
QUICK = ("words", "wide-calls", "gzip", "comments")
WATCHED = float(os.environ.get("SUPACLAW_ENDLESS_SECONDS", "6"))


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

    def at(self, percent: int) -> str:
        """Of the latencies of /health, in ms."""
        ranked = sorted(self.health) or [0.0]
        return f"{ranked[(len(ranked) - 1) * percent // 100] * 1000:.0f}"

    def __str__(self) -> str:
        return (
            f"{self.case:22} memory {self.before:4.0f} > {max(self.memory, default=0):4.0f} > {self.after:4.0f} MB,"
            f" /health p50 {self.at(50)} p95 {self.at(95)} max {self.at(100)} ms, other chat {self.other:5.2f} s,"
            f" /stop {self.stop:5.2f} s"
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
    process: GatewayProcess
    telegram: FakeTelegram
    people: Telegrammers
    ledger: Ledger

    @property
    def memory(self) -> float:
        return float(psutil.Process(self.process.running.pid).memory_info().rss) / MB

    async def watch(self, figures: Figures, client: httpx.AsyncClient) -> None:
        while True:
            began = time.perf_counter()
            assert (await client.get(f"{self.process.url}/health")).status_code == 200
            figures.health.append(time.perf_counter() - began)
            figures.memory.append(self.memory)
            await asyncio.sleep(0.05)

    async def answered(self) -> float:
        """Seconds until another chat is answered."""
        began = time.monotonic()
        said = self.people.say(OWNER)
        words = f"fin{said.key[2:]}"
        await self.telegram.wait_for(lambda tg: any(words in sent.text for sent in tg.sent), 60)
        return time.monotonic() - began

    async def suffer(self, case: str, chat: int, client: httpx.AsyncClient) -> Figures:
        """One case in a chat of its own, watched for a while, then stopped."""
        figures = Figures(case, self.memory)
        watching = asyncio.create_task(self.watch(figures, client))
        self.people.say(chat, f"endless:{case}")
        await asyncio.sleep(0.3)
        figures.other = await self.answered()
        await asyncio.sleep(WATCHED)
        began = time.monotonic()
        self.people.command("/stop", chat)
        await self.telegram.wait_for(lambda tg: any(sent.chat == chat for sent in tg.sent), 90)
        figures.stop = time.monotonic() - began
        assert await self.ledger.settled(60)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        figures.after = self.memory
        print(*[line for line in self.process.told if "rror" in line or "exc" in line or "warn" in line][-6:], sep="\n")
        print(figures, [s.text[:150] for s in self.telegram.sent if s.chat == chat], flush=True)
        return figures


@pytest.fixture
async def scene(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random
) -> AsyncIterator[Scene]:
    async with endless() as address:
        chats = range(OWNER, OWNER + 1 + len(CASES))
        config = crowd(telegram, models, chats)
        config["models"]["providers"]["openai"]["base_url"] = address
        process.configure(config)
        await process.start()
        people = Telegrammers(telegram, chance, chats, tools=0.0)
        yield Scene(process, telegram, people, Ledger(process, telegram))
        await process.close()


@pytest.mark.fault(Fault.ENDLESS)
async def test_a_model_that_never_ends_harms_nobody(scene: Scene, judge: Judge) -> None:
    only = os.environ.get("SUPACLAW_ENDLESS_CASES")
    cases = only.split(",") if only else QUICK
    cases = CASES if cases == ["all"] else cases
    async with httpx.AsyncClient(trust_env=False, timeout=90) as client:
        for _ in range(3):
            await scene.answered()
        figures = [await scene.suffer(case, OWNER + 1 + place, client) for place, case in enumerate(cases)]
    print(*figures, sep="\n")


@pytest.mark.chaos
async def test_web(scene: Scene) -> None:
    async with scene.process.http() as http, scene.process.http() as browser, httpx.AsyncClient(trust_env=False, timeout=90) as client:
        for case in (os.environ["WEBCASE"],):
            link = next(line.split()[1] for line in scene.process.told if line.startswith("web "))
            del browser.headers["Authorization"]; where = link.partition('/login')[0]; name = (scene.process.data / 'keys' / 'page-name').read_text().strip(); name = f"{name}:{scene.process.url.rpartition(':')[2]}"; browser.headers.update({'Host': name, 'Origin': f'http://{name}'}); print(name)
            print(await browser.post("/login", json={"secret": link.partition("#t=")[2]}))
            figures = Figures(case, scene.memory)
            body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": f"endless:{case}"}]}
            page = asyncio.create_task(drain(browser, "/chat/events"))
            api = asyncio.create_task(drain(http, f"/api/events?chat=main"))
            await asyncio.sleep(0.2)
            watching = asyncio.create_task(scene.watch(figures, client))
            await http.post("/api/messages", json={"chat": "main", "text": f"endless:{case}"})
            n = 0
            began = time.monotonic()
            try:
                async with asyncio.timeout(20), http.stream("POST", "/v1/chat/completions", json=body) as response:
                    async for line in response.aiter_raw():
                        n += len(line)
            except TimeoutError:
                pass
            print("v1", n, time.monotonic() - began, page.done() and page.result(), api.done() and api.result())
            figures.other = await scene.answered()
            watching.cancel()
            page.cancel(), api.cancel()
            figures.after = scene.memory
            print(figures, await asyncio.gather(page, api, return_exceptions=True), SIZES, flush=True)


SIZES: dict = {}


async def drain(http: httpx.AsyncClient, path: str) -> int:
    async with http.stream("GET", path, timeout=60) as response:
        print(path, response.status_code)
        async for line in response.aiter_raw():
            SIZES[path] = SIZES.get(path, 0) + len(line)
    return SIZES[path]
