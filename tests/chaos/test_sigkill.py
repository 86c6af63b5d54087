"""Killed: at every named step and at moments that chance picks, while people and programs keep writing."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.config.failpoints import Step
from tests.chaos.conftest import FULL, Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Interrupted, Ledger, Outcome
from tests.chaos.people import CHATS, Programs, Telegrammers, crowd, free_port
from tests.conftest import Server
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess

KILLS = int(os.environ.get("SUPACLAW_CHAOS_KILLS", "500")) if FULL else 4
LANES = 2 if FULL else 1
ROUNDS = 4
"""Kills per step under load, each at a reach of it that chance picks."""
STEP_WITHIN = 4.0
DELIVERY = {Step.OUTBOX_SENDING, Step.OUTBOX_REQUESTED, Step.OUTBOX_SENT}
Life = Callable[[], Awaitable[None]]
"""What goes on in one life of the gateway, until it is killed."""


async def killed_after(ledger: Ledger, life: Life, **environ: str) -> None:
    """Start it, measure how soon what was interrupted is in work again, and see it dead at the end of `life`."""
    interrupted = await Interrupted.now(ledger.process)
    await ledger.process.spawn(**environ)
    watch = asyncio.create_task(interrupted.taken_up(ledger.process, ledger.recovery))
    try:
        await life()
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    if ledger.process.running.returncode is None:
        await ledger.process.kill()
    else:
        await ledger.process.ended()


def at_random(ledger: Ledger, people: Telegrammers, kill: int) -> Life:
    """Every fourth dies before it is ready."""

    async def life() -> None:
        if kill % 4 == 3:
            await people.go_on(people.chance.uniform(0.2, 0.9))
        else:
            await ledger.process.hears("ready")
            await people.go_on(people.chance.uniform(0.05, 0.6))

    return life


def until_dead(ledger: Ledger, writing: Callable[[], Awaitable[None]]) -> Life:
    """Write until the armed step is reached; a step that is not reached in time is killed all the same."""

    async def life() -> None:
        dead = asyncio.create_task(ledger.process.running.wait())
        busy = asyncio.create_task(writing())
        await asyncio.wait([dead], timeout=STEP_WITHIN)
        for task in (dead, busy):
            task.cancel()
        await asyncio.gather(dead, busy, return_exceptions=True)

    return life


async def lane(home: Path, server: Server, seed: str, kills: int) -> Outcome:
    """One gateway with its own database and people, killed so many times."""
    async with FakeTelegram() as telegram, FakeModels() as models, server.fresh() as dsn:
        process = GatewayProcess(home, dsn)
        process.configure(crowd(telegram, models))
        people, ledger = Telegrammers(telegram, random.Random(seed)), Ledger(process, telegram)
        try:
            for kill in range(kills):
                await killed_after(ledger, at_random(ledger, people, kill))
            people.say()
            await process.start()
            assert await ledger.settled(60)
            assert await process.rows("select id from tasks where error = 'lease expired'") == []
            return await ledger.count(people.said, tries=kills)
        finally:
            await process.close()


@pytest.mark.fault(Fault.RANDOM)
async def test_kills_at_random_lose_nothing_and_say_nothing_twice(
    tmp_path: Path, server: Server, chance: random.Random, judge: Judge
) -> None:
    """In all, two gateways at a time: a start takes one core."""
    seeds = [str(chance.random()) for _ in range(LANES)]
    for n in range(LANES):
        (tmp_path / f"lane-{n}").mkdir()
    lanes = [lane(tmp_path / f"lane-{n}", server, seed, KILLS // LANES) for n, seed in enumerate(seeds)]
    for outcome in await asyncio.gather(*lanes):
        judge(Fault.RANDOM, outcome)


@pytest.mark.chaos
@pytest.mark.fault(Fault.STEP_LOAD_TELEGRAM)
@pytest.mark.parametrize("step", [step for step in Step if not step.startswith(("schedule", "openclaw", "sync"))])
async def test_kills_at_a_step_while_people_write(
    process: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    step: Step,
) -> None:
    process.configure(crowd(telegram, models))
    people, ledger = Telegrammers(telegram, chance, CHATS[:3]), Ledger(process, telegram)
    for _ in range(ROUNDS):
        life = until_dead(ledger, lambda: people.go_on(STEP_WITHIN))
        await killed_after(ledger, life, SUPACLAW_FAIL=f"{step}:{chance.randint(1, 3)}")
    people.say()
    await process.start()
    assert await ledger.settled(60)
    judge(Fault.STEP_LOAD_TELEGRAM, await ledger.count(people.said, tries=ROUNDS))


@pytest.mark.chaos
@pytest.mark.fault(Fault.STEP_LOAD_API)
@pytest.mark.parametrize(
    "step",
    [
        step
        for step in Step
        if step not in DELIVERY and not step.startswith(("command", "schedule", "openclaw", "sync"))
    ],
)
async def test_kills_at_a_step_while_programs_ask(
    process: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    step: Step,
) -> None:
    config = crowd(telegram, models)
    config.pop("channels")
    process.configure(config)
    port = free_port()
    programs, ledger = Programs(process, port), Ledger(process)
    over = asyncio.Event()
    asking = asyncio.create_task(programs.go_on(3, chance, over.is_set))
    for _ in range(ROUNDS):
        life = until_dead(ledger, asyncio.Event().wait)
        await killed_after(ledger, life, SUPACLAW_FAIL=f"{step}:{chance.randint(1, 3)}", SUPACLAW_PORT=str(port))
    over.set()
    await process.start(SUPACLAW_PORT=str(port))
    await asyncio.wait_for(asking, 60)
    assert await ledger.settled(60)
    judge(Fault.STEP_LOAD_API, await ledger.count(completed=programs.done, tries=ROUNDS))
    assert sorted(done.number for done in programs.done) == programs.asked


async def killed_every(ledger: Ledger, seconds: float, kills: int, chance: random.Random, **environ: str) -> None:
    """So many lives of about that length."""
    for _ in range(kills):
        await killed_after(ledger, lambda: asyncio.sleep(seconds * chance.uniform(0.7, 1.3)), **environ)


CROWDS = [(30, 4, 15.0, 20_000), (30, 6, 5.0, 8_000), (12, 8, 2.0, 4_000), (1, 8, 2.5, 3_000), (3, 5, 2.5, 3_000)]
"""How many wait, how many kills, how many seconds apart, how slow the model is (ms)."""


@pytest.mark.fault(Fault.BYSTANDERS)
@pytest.mark.parametrize(("waiting", "kills", "apart", "latency"), CROWDS if FULL else [(12, 6, 1.2, 1_500)])
async def test_whoever_waits_while_it_is_killed_again_and_again_is_answered(
    process: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    waiting: int,
    kills: int,
    apart: float,
    latency: int,
) -> None:
    chats = range(OWNER, OWNER + waiting)
    process.configure(crowd(telegram, models, chats))
    models.latency_ms = latency
    people, ledger = Telegrammers(telegram, chance, chats, tools=0.0), Ledger(process, telegram)
    for chat in chats:
        people.say(chat)
    await process.start()
    await process.kill()
    await killed_every(ledger, apart, kills - 1, chance)
    await process.start()
    settled = await ledger.settled(60 + 5 * latency / 1000)
    outcome = await ledger.count(people.said, tries=kills)
    judge(Fault.BYSTANDERS, outcome)
    assert settled
    assert outcome.given_up == 0


@pytest.mark.chaos
@pytest.mark.fault(Fault.BYSTANDERS_API)
async def test_a_request_that_waits_while_it_is_killed_again_and_again_gets_its_answer(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    config = crowd(telegram, models)
    config.pop("channels")
    process.configure(config)
    models.latency_ms = 1_500
    port = free_port()
    programs, ledger = Programs(process, port), Ledger(process)
    over = asyncio.Event()
    asking = asyncio.create_task(programs.go_on(12, chance, over.is_set))
    await killed_every(ledger, 3.0, 20, chance, SUPACLAW_PORT=str(port))
    over.set()
    await process.start(SUPACLAW_PORT=str(port))
    await asyncio.wait_for(asking, 90)
    assert await ledger.settled(60)
    outcome = await ledger.count(completed=programs.done, tries=20)
    judge(Fault.BYSTANDERS_API, outcome)
    assert sorted(done.number for done in programs.done) == programs.asked
    assert outcome.given_up == 0
