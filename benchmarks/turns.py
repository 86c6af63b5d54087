"""Turns through the whole gateway: a message on Telegram in, the answer out, everything real but the two ends."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.model import MockModel, prompt_tokens
from benchmarks.people import People
from benchmarks.processes import cpu_seconds, postgres_pids, pss_mb
from benchmarks.statistics import p95
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured

STARTS = 3
WARM_UP, SEQUENTIAL = 10, 100
CHATS, TURNS_EACH, LOADS = 50, 4, 3
LATENCY_MS = 200
IDLE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Ready:
    """From the spawn of the process to its first poll."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Idle:
    """After a first turn and 20 s in which nothing happened; Postgres on its own."""

    gateway_mb: float
    postgres_mb: float
    cpu_percent: float


@dataclass(frozen=True, slots=True)
class Alone:
    """One chat, one turn after another; `added` is without the model's time."""

    added_p50_ms: float
    added_p95_ms: float
    cpu_ms: float
    model_calls: float


@dataclass(frozen=True, slots=True)
class Load:
    """50 chats, 4 turns each; `turn_p95_s` is of single turns, `most_s` is when 95 % of all turns were over."""

    answered: int
    total_s: float
    turn_p95_s: float
    most_s: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything one run finds out."""

    ready: Ready
    idle: Idle
    alone: Alone
    alone_slow_model: Alone
    load: Load
    idle_litellm: Idle
    prompt_tokens: int


async def measure(home: Path, people: People, model: MockModel) -> Measured:
    """About two minutes."""
    chats = [OWNER + number for number in range(CHATS * LOADS + 2)]
    gateway = GatewayProcess(home, fresh=True)
    async with _closing(gateway):
        _configure(gateway, people.telegram, model, chats, "auto")
        ready = await _starts(gateway, people.telegram)
        await model.take(0)
        await people.say(chats[0])
        first = (await model.asked())[0]
        idle = await _idle(gateway)
        alone = await _alone(gateway, people, model, chats[0], 0)
        alone_slow_model = await _alone(gateway, people, model, chats[1], LATENCY_MS)
        loads = [await _load(gateway, people, chats[2 + n * CHATS :][:CHATS]) for n in range(LOADS)]
        await gateway.terminate()
        _configure(gateway, people.telegram, model, chats, "litellm")
        await gateway.start()
        await people.say(chats[0])
        idle_litellm = await _idle(gateway)
    load = sorted(loads, key=lambda load: load.total_s)[LOADS // 2]
    return Measured(ready, idle, alone, alone_slow_model, load, idle_litellm, prompt_tokens(first))


def _configure(
    gateway: GatewayProcess, telegram: FakeTelegram, model: MockModel, chats: Sequence[int], engine: str
) -> None:
    config = configured(telegram)
    config["channels"]["telegram"]["allow"] = [str(chat) for chat in chats]
    providers = {"openai": {"api_key": "sk-of-the-owner", "base_url": model.base_url}}
    config["models"] = {"primary": "openai/mock-model", "engine": engine, "providers": providers}
    gateway.configure(config)


async def _starts(gateway: GatewayProcess, telegram: FakeTelegram) -> Ready:
    """The median of three starts, after one that makes the database; the last one stays up."""
    await gateway.start()
    starts: list[Ready] = []
    for _ in range(STARTS):
        await gateway.terminate()
        starts.append(await _ready(gateway, telegram))
    return Ready(median(start.wall_s for start in starts), median(start.cpu_s for start in starts))


async def _ready(gateway: GatewayProcess, telegram: FakeTelegram) -> Ready:
    polls, began = telegram.polls, perf_counter()
    await gateway.spawn()
    await telegram.wait_for(lambda tg: tg.polls > polls, 60)
    ready = Ready(perf_counter() - began, cpu_seconds(gateway.running.pid))
    await gateway.hears("ready")
    return ready


async def _idle(gateway: GatewayProcess) -> Idle:
    pid = gateway.running.pid
    before = cpu_seconds(pid)
    await asyncio.sleep(IDLE_SECONDS)
    percent = (cpu_seconds(pid) - before) / IDLE_SECONDS * 100
    return Idle(pss_mb(pid), pss_mb(*postgres_pids(gateway.data)), percent)


async def _alone(gateway: GatewayProcess, people: People, model: MockModel, chat: int, latency_ms: int) -> Alone:
    await model.take(latency_ms)
    await people.talk([chat], WARM_UP)
    await model.take(latency_ms)
    before = cpu_seconds(gateway.running.pid)
    talk = await people.talk([chat], SEQUENTIAL)
    spent = cpu_seconds(gateway.running.pid) - before
    added = [seconds * 1000 - latency_ms for seconds in talk.turns]
    calls = len(await model.asked()) / SEQUENTIAL
    return Alone(median(added), p95(added), spent / SEQUENTIAL * 1000, calls)


async def _load(gateway: GatewayProcess, people: People, chats: Sequence[int]) -> Load:
    before = cpu_seconds(gateway.running.pid)
    talk = await people.talk(chats, TURNS_EACH)
    spent = cpu_seconds(gateway.running.pid) - before
    turns = CHATS * TURNS_EACH
    most = sorted(talk.ended)[: int(turns * 0.95)][-1]
    return Load(len(talk.turns), max(talk.ended), p95(talk.turns), most, spent / turns * 1000)


@asynccontextmanager
async def _closing(gateway: GatewayProcess) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await gateway.close()
