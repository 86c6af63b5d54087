"""A start beside a database that is away, refuses, or vanishes for a moment at any of its steps."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import httpx
import pytest

from tests.chaos.conftest import FULL, Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Ledger, Outcome
from tests.chaos.people import Telegrammers, crowd, free_port, holds
from tests.chaos.proxy import Proxy, Refusal, Trap, before_postgres
from tests.chaos.test_postgres import Scene, postmaster_of, strike
from tests.chaos.test_postgres import scene as scene
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import GatewayProcess

WHILE = 75.0 if FULL else 3.0
STEPS = {
    "schema": b"from supaclaw.migrations",
    "ledger": b"create schema if not exists supaclaw",
    "migration": b"create table member_keys",
    "last migration": b"insert into supaclaw.migrations",
    "lease": b"insert into leases",
    "owner": b"insert into principals",
    "people": b"from pairings",
    "recovery": b"select release(",
    "commands": b"handled_at is null",
    "journal": b"from journals",
}


async def health(process: GatewayProcess, port: int) -> str:
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            return (await client.get(f"http://127.0.0.1:{port}/health")).text
    except httpx.TransportError:
        return ""


async def waits(scene: Scene) -> int:
    """Start it; once it says on every way that it waits, the port it will be at."""
    port = free_port()
    await scene.process.spawn(SUPACLAW_PORT=str(port))
    line = await scene.process.hears("start.waits")
    assert "check" in line, line
    assert await holds(lambda: is_waiting(scene.process, port), 10)
    async with httpx.AsyncClient(trust_env=False) as client:
        told = {"Authorization": f"Bearer {scene.process.token}"}
        stranger, friend = [(await client.get(f"http://127.0.0.1:{port}/api/status", headers=h)) for h in ({}, told)]
    assert stranger.json()["error"]["message"] == "The gateway waits for its database"
    assert "check" in friend.json()["error"]["message"]
    return port


async def is_well(process: GatewayProcess, port: int) -> bool:
    return await health(process, port) == "ok\n"


async def is_waiting(process: GatewayProcess, port: int) -> bool:
    return await health(process, port) == "waiting\n"


REFUSALS: dict[str, Callable[[Proxy], object]] = {
    "away": lambda proxy: proxy.refuse(),
    "login": lambda proxy: setattr(proxy, "refusal", Refusal("28P01", "password authentication failed")),
    "no database": lambda proxy: setattr(proxy, "refusal", Refusal("3D000", "database does not exist")),
    "pooler": lambda proxy: setattr(proxy, "refusal", Refusal("XX000", "server_login_retry")),
    "starting up": lambda proxy: setattr(proxy, "refusal", Refusal("57P03", "the database system is starting up")),
    "begin": lambda proxy: setattr(proxy, "refusal", Refusal("XX000", "no more connections", b"BEGIN;")),
    "lease": lambda proxy: setattr(proxy, "refusal", Refusal("42501", "permission denied", b"into leases")),
}


@pytest.mark.fault(Fault.START_WITHOUT)
@pytest.mark.parametrize("how", ["away", *(pytest.param(how, marks=pytest.mark.chaos) for how in list(REFUSALS)[1:])])
async def test_a_start_without_it_waits_and_then_works(scene: Scene, judge: Judge, how: str) -> None:
    await scene.process.start()
    await scene.people.go_on(0.5)
    await scene.process.kill()
    made = REFUSALS[how](scene.proxy)
    if asyncio.iscoroutine(made):
        await made
    port = await waits(scene)
    await scene.people.go_on(WHILE if how == "away" else 3.0, pause=1.0)
    said = [line for line in scene.process.told if "start.waits" in line]
    assert len(said) == 1 + int(how == "away" and WHILE > 60)
    assert scene.process.running.returncode is None
    scene.proxy.refusal = None
    if how == "away":
        await scene.proxy.listen()
    await scene.process.hears("ready")
    assert await holds(lambda: is_well(scene.process, port), 15)
    await scene.close(judge, Fault.START_WITHOUT, time.time(), how)


@pytest.mark.fault(Fault.START_WITHOUT)
@pytest.mark.parametrize("how", ["away", pytest.param("frozen", marks=pytest.mark.chaos)])
async def test_a_start_that_waits_ends_when_told_to(scene: Scene, judge: Judge, how: str) -> None:
    if how == "away":
        await scene.proxy.refuse()
        await waits(scene)
    else:
        scene.proxy.freeze()
        port = free_port()
        await scene.process.spawn(SUPACLAW_PORT=str(port))
        assert await holds(lambda: is_waiting(scene.process, port), 10)
    began = time.monotonic()
    ended = await scene.process.terminate()
    judge(Fault.START_WITHOUT, Outcome(), f"SIGTERM while {how}: ended in {time.monotonic() - began:.1f} s")
    assert ended.code == 0
    assert "Traceback" not in ended.told


@pytest.mark.fault(Fault.START_WITHOUT)
@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=() if step == "lease" else pytest.mark.chaos) for step in STEPS]
)
async def test_a_moment_without_it_at_any_step_only_delays_the_start(
    tmp_path_factory: pytest.TempPathFactory,
    telegram: FakeTelegram,
    models: FakeModels,
    judge: Judge,
    empty_dsn: str,
    scene: Scene,
    step: str,
) -> None:
    process = GatewayProcess(tmp_path_factory.mktemp("home"), empty_dsn)
    process.configure(crowd(telegram, models))
    people, ledger = Telegrammers(telegram, scene.people.chance), Ledger(process, telegram)
    async with before_postgres(empty_dsn) as (proxy, address):
        process.environ["SUPACLAW_DATABASE_URL"] = address
        proxy.trap = trap = Trap(STEPS[step], "after", times=1)
        for _ in range(6):
            people.say()
        await process.spawn()
        assert await holds(lambda: sprung(trap), 20)
        await proxy.refuse()
        await asyncio.sleep(0.4)
        await proxy.listen()
        await process.hears("ready")
        assert await ledger.settled(60)
        judge(Fault.START_WITHOUT, await ledger.count(people.said), f"0.4 s without it at {step}")
        await process.close()


async def sprung(trap: Trap) -> bool:
    return bool(trap.sprung)


@pytest.mark.chaos
@pytest.mark.fault(Fault.START_WITHOUT)
async def test_an_embedded_server_that_is_killed_while_it_starts_is_started_again(
    embedded: GatewayProcess, telegram: FakeTelegram, models: FakeModels, judge: Judge
) -> None:
    embedded.configure(crowd(telegram, models))
    await embedded.start()
    for delay in (0.05, 0.1, 0.15, 0.2, 0.3, 0.5):
        await embedded.terminate()
        await embedded.spawn()
        assert await holds(lambda: has_postmaster(embedded), 20)
        await asyncio.sleep(delay)
        with suppress(ProcessLookupError):  # it has ended its start by then
            await strike(embedded, "kill")
        await embedded.hears("ready")
    judge(Fault.START_WITHOUT, Outcome(tries=6), "embedded server killed while it starts")


async def has_postmaster(process: GatewayProcess) -> bool:
    try:
        return postmaster_of(process) > 0
    except (OSError, IndexError, ValueError):
        return False
