"""What happens to the process: stopped, frozen, doubled, misconfigured, deprived of its log, killed by a message."""

import asyncio
import json
import random
import signal
import time
from pathlib import Path

import pytest

from tests.chaos.conftest import FULL, Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Interrupted, Ledger, answered_after
from tests.chaos.people import Telegrammers, crowd, holds
from tests.chaos.proxy import before_postgres
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, happens, until

FROZEN = 45.0
"""Longer than a lease."""
GIVEN_UP = "attempts failed"


@pytest.fixture
def people(telegram: FakeTelegram, chance: random.Random) -> Telegrammers:
    return Telegrammers(telegram, chance)


@pytest.fixture
def ledger(process: GatewayProcess, telegram: FakeTelegram) -> Ledger:
    return Ledger(process, telegram)


@pytest.mark.fault(Fault.TERMINATED)
async def test_sigterm_in_mid_turn_drains_and_loses_nothing(
    process: GatewayProcess, models: FakeModels, people: Telegrammers, ledger: Ledger, judge: Judge
) -> None:
    process.configure(crowd(people.telegram, models))
    tries = 8 if FULL else 1
    for _ in range(tries):
        interrupted = await Interrupted.now(process)
        await process.start()
        watch = asyncio.create_task(interrupted.taken_up(process, ledger.recovery))
        models.latency_ms = people.chance.choice([20, 300, 1500])
        await people.go_on(people.chance.uniform(0.2, 1.5))
        began = time.monotonic()
        ended = await process.terminate()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        assert ended.code == 0
        assert time.monotonic() - began < 15
    models.latency_ms = 0
    await process.start()
    people.say()
    settled = await ledger.settled(60)
    judge(Fault.TERMINATED, await ledger.count(people.said, tries=tries))
    assert settled


@pytest.mark.chaos
@pytest.mark.fault(Fault.SUSPENDED)
async def test_a_process_that_was_frozen_past_its_lease_is_fenced(
    process: GatewayProcess, models: FakeModels, people: Telegrammers, ledger: Ledger, judge: Judge
) -> None:
    process.configure(crowd(people.telegram, models))
    await process.start()
    models.latency_ms = 500
    for chat in people.chats:
        people.say(chat)
    await happens(models.started)
    process.running.send_signal(signal.SIGSTOP)
    async with process.connected() as conn:  # as another machine would, once the leases are over
        await conn.execute("update tasks set lease_until = now() - interval '1 s' where status = 'running'")
    await asyncio.sleep(FROZEN)
    for chat in people.chats:
        people.say(chat)
    process.running.send_signal(signal.SIGCONT)
    thawed = time.time()
    settled = await ledger.settled(90)
    ledger.recovery += await answered_after(process, thawed)
    judge(Fault.SUSPENDED, await ledger.count(people.said), f"frozen {FROZEN:.0f} s")
    assert settled


@pytest.mark.chaos
@pytest.mark.fault(Fault.TWO_GATEWAYS, Fault.SUSPENDED)
async def test_another_gateway_takes_over_from_one_that_is_frozen_and_the_zombie_writes_nothing(
    process: GatewayProcess,
    second: GatewayProcess,
    models: FakeModels,
    people: Telegrammers,
    ledger: Ledger,
    judge: Judge,
) -> None:
    config = crowd(people.telegram, models)
    process.configure(config)
    second.configure(config)
    await process.start()
    models.latency_ms = 2000
    for chat in people.chats:
        people.say(chat)
    await happens(models.started)
    process.running.send_signal(signal.SIGSTOP)
    frozen = time.monotonic()

    await second.start()
    assert await holds(lambda: has_telegram(second), 60)
    ledger.recovery.append(time.monotonic() - frozen)
    models.latency_ms = 50
    process.running.send_signal(signal.SIGCONT)
    await people.go_on(5.0, pause=0.5)
    ended = await process.ended()
    assert (ended.code, "another gateway took over" in ended.told) == (1, True)
    settled = await ledger.settled(120)
    judge(Fault.TWO_GATEWAYS, await ledger.count(people.said))
    assert settled


@pytest.mark.chaos
@pytest.mark.fault(Fault.ZOMBIE)
@pytest.mark.parametrize(
    ("frozen", "wakes", "database"),
    [(35, 1, "calm"), (45, 1, "reset"), (60, 1, "silent"), (45, 3, "calm"), (45, 1, "refusing")],
)
async def test_a_gateway_that_wakes_beside_its_successor_ends_at_once(
    tmp_path: Path,
    dsn: str,
    second: GatewayProcess,
    models: FakeModels,
    people: Telegrammers,
    judge: Judge,
    frozen: int,
    wakes: int,
    database: str,
) -> None:
    """`wakes`: for an instant in between, while the lease still lives."""
    ledger, config = Ledger(second, people.telegram), crowd(people.telegram, models)
    async with before_postgres(dsn) as (proxy, through):
        first = GatewayProcess(tmp_path / "first", through)
        first.home.mkdir()
        try:
            first.configure(config)
            second.configure(config)
            await first.start()
            await people.go_on(2.0)
            models.latency_ms = 2000
            for chat in people.chats:
                people.say(chat)
            await happens(models.started)
            for _ in range(wakes - 1):
                first.running.send_signal(signal.SIGSTOP)
                await asyncio.sleep(8)
                first.running.send_signal(signal.SIGCONT)
                await asyncio.sleep(0.2)
            first.running.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            await second.start()
            assert await holds(lambda: has_telegram(second), 60)
            models.latency_ms = 50
            await asyncio.sleep(max(0.0, stopped + frozen - time.monotonic()))
            if database == "reset":
                proxy.reset()
            elif database == "silent":
                proxy.freeze()
            elif database == "refusing":
                await proxy.refuse()
            first.running.send_signal(signal.SIGCONT)
            woke = time.monotonic()
            writing = asyncio.create_task(people.go_on(3.0))
            if database in ("silent", "refusing"):
                await asyncio.sleep(8)
                proxy.thaw()
                if database == "refusing":
                    await proxy.listen()
                woke = time.monotonic()
            ended = await first.ended()
            ledger.recovery.append(time.monotonic() - woke)
            print("ENDED after", time.monotonic() - woke)
            await writing
        finally:
            await first.close()
    assert (ended.code, "another gateway took over" in ended.told) == (1, True)
    settled = await ledger.settled(120)
    judge(Fault.ZOMBIE, await ledger.count(people.said))
    assert settled
    assert second.running.returncode is None


@pytest.mark.chaos
@pytest.mark.fault(Fault.TWO_GATEWAYS)
async def test_a_second_gateway_takes_over_from_a_dead_one(
    process: GatewayProcess,
    second: GatewayProcess,
    models: FakeModels,
    people: Telegrammers,
    ledger: Ledger,
    judge: Judge,
) -> None:
    config = crowd(people.telegram, models)
    process.configure(config)
    second.configure(config)
    await process.start()
    await people.go_on(1.0)
    await second.start()
    assert not await has_telegram(second)
    await process.kill()
    died = time.monotonic()

    assert await holds(lambda: has_telegram(second), 45)
    took = time.monotonic() - died
    ledger.recovery.append(took)
    people.say()
    settled = await ledger.settled(120)
    judge(Fault.TWO_GATEWAYS, await ledger.count(people.said), f"took over after {took:.0f} s")
    assert settled
    assert took < 40


@pytest.mark.chaos
@pytest.mark.fault(Fault.CONFIG)
async def test_a_config_that_is_written_slowly_never_stops_it(
    process: GatewayProcess, models: FakeModels, people: Telegrammers, ledger: Ledger, judge: Judge
) -> None:
    config = crowd(people.telegram, models)
    process.configure(config)
    await process.start()
    whole = json.dumps(config | {"owner": config["owner"] | {"name": "Grace"}})
    places = sorted(people.chance.sample(range(len(whole)), 12 if FULL else 4))
    for place in [0, *places]:
        (process.home / "config.json").write_text(whole[:place], encoding="utf-8")
        people.say(OWNER)
        await asyncio.sleep(0.4)
    (process.home / "config.json").write_text(whole, encoding="utf-8")
    await process.hears("config.changed")
    people.say(OWNER)
    assert await ledger.settled(60)
    judge(Fault.CONFIG, await ledger.count(people.said, tries=len(places) + 1))
    assert process.running.returncode is None
    assert any("The last good version is still in use." in sent.text for sent in people.telegram.sent)


@pytest.mark.chaos
@pytest.mark.fault(Fault.LOGS)
async def test_it_goes_on_when_nobody_takes_its_output(
    process: GatewayProcess, models: FakeModels, people: Telegrammers, ledger: Ledger, judge: Judge
) -> None:
    process.configure(crowd(people.telegram, models))
    await process.start()
    transport = process.running._transport
    for descriptor in (1, 2):
        transport.get_pipe_transport(descriptor).close()
    await people.go_on(2.0)
    settled = await ledger.settled(30)
    judge(Fault.LOGS, await ledger.count(people.said))
    assert settled
    assert process.running.returncode is None


@pytest.mark.chaos
@pytest.mark.fault(Fault.POISON)
@pytest.mark.parametrize(("killers", "most"), [(1, 5), (2, 11)])
async def test_messages_that_kill_the_process_are_given_up_and_the_others_are_answered(
    process: GatewayProcess,
    models: FakeModels,
    people: Telegrammers,
    ledger: Ledger,
    judge: Judge,
    killers: int,
    most: int,
) -> None:
    """Running its tool is what kills: only the poison reaches for one."""
    process.configure(crowd(people.telegram, models))
    people.tools = 0.0
    chats = {people.say(chat, "poison with a tool").chat for chat in people.chats[:killers]}
    deaths = 0

    async def it_died_or_gave_up() -> bool:
        return process.running.returncode is not None or _given_up(people.telegram) == chats

    while _given_up(people.telegram) != chats:
        await process.spawn(SUPACLAW_FAIL="tool.ran")
        people.say(people.chats[killers])
        await until(it_died_or_gave_up, 240)  # longer than any pause
        if process.running.returncode is not None:
            await process.ended()
            deaths += 1
        assert deaths <= most
    settled = await ledger.settled(30)
    outcome = await ledger.count(people.said, tries=deaths)
    judge(Fault.POISON, outcome, f"{killers} of them, {deaths} deaths")
    assert settled
    assert deaths >= 3 * killers  # and two in company
    assert outcome.given_up == killers
    assert len([sent for sent in people.telegram.sent if GIVEN_UP in sent.text]) == killers


def _given_up(telegram: FakeTelegram) -> set[int]:
    return {sent.chat for sent in telegram.sent if GIVEN_UP in sent.text}


async def has_telegram(process: GatewayProcess) -> bool:
    """Whether it took the channel over from the other gateway."""
    mine = "select from leases where name = 'channel telegram' and expires_at > now() and holder::text = $1"
    return bool(await process.rows(mine, (process.data / "instance").read_text().strip()))
