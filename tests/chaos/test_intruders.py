"""Who has no credential holds up nobody: the web side under attack, while the owner goes on."""

import asyncio
import math
import random
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import psutil
import pytest

from tests.chaos.conftest import Judge
from tests.chaos.faults import Fault
from tests.chaos.intruders import KINDS
from tests.chaos.ledger import Ledger
from tests.chaos.people import Telegrammers, crowd
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, ROOT, GatewayProcess

SECONDS = 62.0
"""The gateway tells the lag of the last minute."""
BETWEEN = 0.5
MB = 1024 * 1024


@asynccontextmanager
async def attacked(process: GatewayProcess, kind: str) -> AsyncIterator[list[int]]:
    """Attack it meanwhile; how often is in the list afterwards."""
    port = process.url.rpartition(":")[2]
    command = (sys.executable, "-m", "tests.chaos.intruders", kind, port)
    intruders = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
    assert intruders.stdout is not None
    tries = [0]

    async def count(said: asyncio.StreamReader) -> None:
        async for line in said:
            tries[0] = int(line)

    counting = asyncio.create_task(count(intruders.stdout))
    try:
        yield tries
    finally:
        intruders.kill()
        await intruders.wait()
        await counting


async def pinged(telegram: FakeTelegram) -> float:
    """How long the owner waits for /ping."""
    before, began = len(telegram.sent), time.perf_counter()
    telegram.say("/ping", OWNER)
    await telegram.wait_for(lambda tg: any(sent.text.startswith("pong") for sent in tg.sent[before:]))
    return time.perf_counter() - began


async def asked(client: httpx.AsyncClient) -> float:
    """How long a program of the owner waits, on the address of the intruders and on a connection of its own."""
    began = time.perf_counter()
    for path in ("/api/status", "/health"):
        assert (await client.get(path, headers={"Connection": "close"})).status_code == 200
    return (time.perf_counter() - began) / 2


@pytest.mark.chaos
@pytest.mark.fault(Fault.INTRUDERS)
@pytest.mark.parametrize("kind", KINDS)
async def test_who_has_no_credential_holds_up_nobody(
    process: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    kind: str,
) -> None:
    process.configure(crowd(telegram, models))
    await process.start()
    people, ledger = Telegrammers(telegram, chance, commands=0.0), Ledger(process, telegram)
    people.say(OWNER)
    assert await ledger.settled(30)
    before = memory(process)
    programs: list[float] = []
    pings, grown = [await pinged(telegram)], 0.0
    async with attacked(process, kind) as tries, process.http() as client:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            pings.append(await pinged(telegram))
            programs.append(await asked(client))
            grown = max(grown, memory(process) - before)
            people.say()
            await asyncio.sleep(BETWEEN)
        lag = await worst(process)
    assert await ledger.settled(60)
    waits = f"/ping {p99(pings) * 1000:.0f} ms, a request {p99(programs) * 1000:.0f} ms"
    note = f"{kind}: loop lag p99 {lag:.0f} ms, {waits}, +{grown:.0f} MB"
    judge(Fault.INTRUDERS, await ledger.count(people.said, tries=tries[0]), note)
    assert lag < 100
    assert p99(pings) < 1
    assert p99(programs) < 1
    assert grown < 100


async def worst(process: GatewayProcess) -> float:
    """The lag p99 of its event loop in the last minute, in ms, as it says itself."""
    async with process.http() as client:
        return float((await client.get("/api/status")).json()["vitals"]["loop"]["p99_ms"])


def memory(process: GatewayProcess) -> float:
    """MB that are the gateway's own."""
    return float(psutil.Process(process.running.pid).memory_full_info().uss) / MB


def p99(figures: list[float]) -> float:
    """The smallest figure that 99 % of them do not exceed."""
    return sorted(figures)[math.ceil(len(figures) * 0.99) - 1]
