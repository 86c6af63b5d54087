"""Postgres killed, restarted, away, slow, full of connections, in conflict; the line to it reset, frozen, sliced."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Literal

import asyncpg
import httpx
import pytest

from gateway.config.failpoints import Step
from tests.chaos.conftest import FULL, Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Ledger, answered_after
from tests.chaos.people import Telegrammers, crowd, holds
from tests.chaos.proxy import Proxy, Trap, Weather, before_postgres
from tests.conftest import Server
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram, Refusal
from tests.journeys.process import OWNER, GatewayProcess

AWAY = 30.0 if FULL else 5.0
STRIKES = 30 if FULL else 4
CUT_OFF = "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}'"


@dataclass
class Scene:
    """A gateway that reaches its database over `proxy`, people who write, and the count of it all."""

    process: GatewayProcess
    proxy: Proxy
    people: Telegrammers
    ledger: Ledger
    models: FakeModels

    @property
    def telegram(self) -> FakeTelegram:
        return self.people.telegram

    async def close(self, judge: Judge, fault: Fault, healed: float, *notes: str, tries: int = 1) -> None:
        """The fault is over since `healed`: everything must come to its end."""
        self.people.say()
        settled = await self.ledger.settled(90)
        self.ledger.recovery += await answered_after(self.process, healed)
        judge(fault, await self.ledger.count(self.people.said, tries=tries), *notes)
        assert settled


@pytest.fixture
async def scene(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random
) -> AsyncIterator[Scene]:
    assert process.dsn is not None
    process.configure(crowd(telegram, models))
    async with before_postgres(process.dsn) as (proxy, address):
        process.environ["SUPACLAW_DATABASE_URL"] = address
        yield Scene(process, proxy, Telegrammers(telegram, chance), Ledger(process, telegram), models)
        await process.close()


# --- the server itself ---


def postmaster_of(process: GatewayProcess) -> int:
    return int((process.data / "postgres" / "postmaster.pid").read_text().splitlines()[0])


async def strike(process: GatewayProcess, how: Literal["kill", "fast", "immediate"]) -> None:
    """End the embedded server; the gateway brings it back by itself."""
    postmaster = postmaster_of(process)
    os.kill(postmaster, {"kill": signal.SIGKILL, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[how])


async def is_back(process: GatewayProcess, before: int) -> bool:
    """Whether another server than before takes logins."""
    try:
        if postmaster_of(process) == before:
            return False
        connection = await asyncpg.connect(process.postgres.superuser_dsn(), timeout=2)
    except (OSError, asyncpg.PostgresError, IndexError, ValueError):
        return False
    await connection.close()
    return True


@pytest.mark.chaos
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("kill", marks=pytest.mark.fault(Fault.POSTMASTER)),
        pytest.param("fast", marks=pytest.mark.fault(Fault.RESTARTED)),
        pytest.param("immediate", marks=pytest.mark.fault(Fault.RESTARTED)),
    ],
)
async def test_a_server_that_ends_in_a_burst_loses_nothing(
    embedded: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    chance: random.Random,
    judge: Judge,
    how: Literal["kill", "fast", "immediate"],
) -> None:
    embedded.configure(crowd(telegram, models))
    await embedded.start()
    people, ledger, tries = Telegrammers(telegram, chance), Ledger(embedded, telegram), 5 if FULL else 1
    for _ in range(tries):
        writing = asyncio.create_task(people.go_on(2.0))
        await asyncio.sleep(chance.uniform(0.3, 1.5))
        before = postmaster_of(embedded)
        await strike(embedded, how)
        assert await holds(lambda before=before: is_back(embedded, before), 30)
        healed = time.time()
        await writing
        people.say()
        assert await ledger.settled(60)
        ledger.recovery += await answered_after(embedded, healed)
    fault = Fault.POSTMASTER if how == "kill" else Fault.RESTARTED
    judge(fault, await ledger.count(people.said, tries=tries))
    assert embedded.running.returncode is None


@pytest.mark.fault(Fault.STOPPED)
async def test_what_is_said_while_the_database_is_away_is_answered_after_it(scene: Scene, judge: Judge) -> None:
    await scene.process.start()
    await scene.people.go_on(1.0)
    await scene.proxy.refuse()
    await scene.people.go_on(AWAY, pause=0.5)
    assert scene.process.running.returncode is None
    await scene.proxy.listen()
    await scene.close(judge, Fault.STOPPED, time.time(), f"away {AWAY:.0f} s")


@pytest.mark.fault(Fault.STOPPED_KILLED)
async def test_a_kill_while_the_database_is_away_loses_nothing(scene: Scene, judge: Judge) -> None:
    await scene.process.start()
    await scene.people.go_on(1.0)
    await scene.proxy.refuse()
    await scene.people.go_on(3.0, pause=0.5)
    await scene.process.kill()
    await scene.proxy.listen()
    await scene.process.start()
    await scene.close(judge, Fault.STOPPED_KILLED, time.time())


@pytest.mark.fault(Fault.STOPPED_KILLED)
async def test_a_kill_between_disk_and_platform_while_the_database_is_away_loses_nothing(
    scene: Scene, judge: Judge
) -> None:
    await scene.process.start(SUPACLAW_FAIL=Step.INBOUND_SPOOLED)
    await scene.people.go_on(1.0)
    await scene.proxy.refuse()
    scene.people.say(OWNER)  # who has a file already, or gets one at once
    assert (await scene.process.ended()).code == -9
    await scene.proxy.listen()
    await scene.process.start()
    await scene.close(judge, Fault.STOPPED_KILLED, time.time())


@pytest.mark.chaos
@pytest.mark.fault(Fault.STOPPED_KILLED)
async def test_starts_and_kills_while_the_database_is_away_lose_nothing(scene: Scene, judge: Judge) -> None:
    await scene.process.start()
    await scene.people.go_on(1.0)
    for _ in range(4):
        await scene.proxy.refuse()
        await scene.people.go_on(2.0, pause=0.5)
        await scene.process.kill()
        await scene.process.spawn()  # it may start without a database, or refuse to: nothing may be lost either way
        await scene.people.go_on(2.0, pause=0.5)
        if scene.process.running.returncode is None:
            await scene.process.kill()
        await scene.process.ended()
        await scene.proxy.listen()
        await scene.process.start()
        await scene.people.go_on(0.5)
    await scene.close(judge, Fault.STOPPED_KILLED, time.time(), tries=4)


# --- slow, full, in conflict ---


async def delays(process: GatewayProcess, seconds: float) -> list[float]:
    """How long GET /health took, asked again and again for so many seconds."""
    took: list[float] = []
    end = time.monotonic() + seconds
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        await client.get(f"{process.url}/health")
        while time.monotonic() < end:
            began = time.perf_counter()
            await client.get(f"{process.url}/health")
            took.append(time.perf_counter() - began)
            await asyncio.sleep(0.02)
    return sorted(took)


async def lag(process: GatewayProcess) -> list[str]:
    """What it says itself about its event loop in the last minute."""
    async with process.http() as client:
        vitals = (await client.get("/api/status")).json().get("vitals") or {}
    loop = vitals.get("loop")
    return [f"loop lag p99 {loop['p99_ms']:.0f} ms"] if loop else []


@pytest.mark.fault(Fault.SLOW)
async def test_a_slow_database_does_not_hold_up_the_event_loop(scene: Scene, judge: Judge) -> None:
    await scene.process.start()
    scene.people.say()
    await scene.telegram.wait_for(lambda tg: bool(tg.sent))
    scene.proxy.there = Weather(delay=2.0)
    for chat in scene.people.chats:
        scene.people.say(chat)
    took = await delays(scene.process, 30 if FULL else 5)
    scene.proxy.calm()
    p99 = took[int(len(took) * 0.99)]
    await scene.close(judge, Fault.SLOW, time.time(), f"/health p99 {p99 * 1000:.0f} ms", *await lag(scene.process))
    assert p99 < 0.1 or not FULL


@pytest.mark.chaos
@pytest.mark.fault(Fault.EXHAUSTED)
async def test_without_a_free_connection_it_waits_and_goes_on(scene: Scene, judge: Judge, server: Server) -> None:
    await scene.process.start()
    await scene.people.go_on(0.5)
    name = (scene.process.dsn or "").partition("@/")[2].partition("?")[0]
    await server.maintain(f"alter database {name} connection limit 0")
    scene.proxy.drop()
    await scene.people.go_on(10.0 if FULL else 4.0, pause=0.4)
    assert scene.process.running.returncode is None
    await server.maintain(f"alter database {name} connection limit -1")
    await scene.close(judge, Fault.EXHAUSTED, time.time())
    assert not [sent.text for sent in scene.telegram.sent if "rror" in sent.text]


CONFLICT = """
create function supaclaw.chaos() returns trigger language plpgsql as $$
begin
  if random() < 0.2 then
    raise exception 'made by a test' using errcode = case when random() < 0.5 then '40001' else '40P01' end;
  end if;
  return new;
end $$;
create trigger chaos before insert or update on supaclaw.{table} for each row execute function supaclaw.chaos();
"""


@pytest.mark.fault(Fault.SERIALIZATION)
@pytest.mark.parametrize(
    "table",
    [
        "messages",
        pytest.param("tasks", marks=pytest.mark.chaos),
        pytest.param("inbox", marks=pytest.mark.chaos),
        pytest.param("outbox", marks=pytest.mark.chaos),
    ],
)
async def test_conflicts_in_the_database_are_tried_again(scene: Scene, judge: Judge, table: str) -> None:
    await scene.process.start()
    await scene.process.rows("select 1")
    async with scene.process.connected() as conn:
        await conn.execute(CONFLICT.format(table=table))
    await scene.people.go_on(10.0 if FULL else 3.0, pause=0.3)
    async with scene.process.connected() as conn:
        await conn.execute(f"drop trigger chaos on supaclaw.{table}")
    await scene.close(judge, Fault.SERIALIZATION, time.time())


# --- deliveries meanwhile ---


@pytest.mark.fault(Fault.RECEIPTS)
@pytest.mark.parametrize(
    "how", ["refuses logins", *(pytest.param(how, marks=pytest.mark.chaos) for how in ("away", "hangs", "renamed"))]
)
async def test_what_was_delivered_without_the_database_is_settled_when_it_answers(
    scene: Scene, judge: Judge, server: Server, how: str
) -> None:
    """Some arrive, one is refused, one has to wait: the platform says so while nothing can be stored."""
    name = (scene.process.dsn or "").partition("@/")[2].partition("?")[0]
    refusals = (Refusal(403, "Forbidden: bot was blocked by the user"), Refusal(429, "Too Many Requests"))
    await scene.process.start()
    for _ in range(3 if FULL else 1):
        shown, known = len(scene.telegram.sent), len(scene.telegram.calls)
        scene.telegram.hang("sendMessage")
        for chat in scene.people.chats:
            scene.people.command("/ping", chat)
        await scene.telegram.wait_for(
            lambda tg, known=known: len(scene.people.chats) == [m for m, _ in tg.calls[known:]].count("sendmessage")
        )
        match how:
            case "refuses logins":
                await server.maintain(f"alter database {name} with allow_connections false")
                scene.proxy.drop()
            case "renamed":
                await scene.proxy.refuse()
                await server.maintain(CUT_OFF.format(name), f"alter database {name} rename to {name}_away")
                await scene.proxy.listen()
            case "away":
                await scene.proxy.refuse()
            case _:
                scene.proxy.freeze()
        scene.telegram.refuse("sendMessage", *refusals)
        scene.telegram.release()
        arrived = shown + len(scene.people.chats) - len(refusals)
        await scene.telegram.wait_for(lambda tg, arrived=arrived: len(tg.sent) == arrived)
        await asyncio.sleep(10.0)  # longer than the writes of one outcome are counted
        match how:
            case "refuses logins":
                await server.maintain(f"alter database {name} with allow_connections true")
            case "renamed":
                await server.maintain(f"alter database {name}_away rename to {name}")
            case "away":
                await scene.proxy.listen()
            case _:
                scene.proxy.thaw()
        assert await scene.ledger.settled(60)
    states = Counter(row["state"] for row in await scene.process.rows("select state from outbox"))
    rounds = 3 if FULL else 1
    judge(
        Fault.RECEIPTS,
        replace(await scene.ledger.count(), tries=len(scene.people.said)),
        f"{how}: {states['sending']} left behind",
    )
    assert states == {"sent": rounds * (len(scene.people.chats) - 1), "failed": rounds}
    assert scene.process.running.returncode is None


# --- the line between ---


@pytest.mark.fault(Fault.COMMIT)
@pytest.mark.parametrize("when", ["after", pytest.param("before", marks=pytest.mark.chaos)])
async def test_a_line_that_breaks_at_commit_loses_nothing(
    scene: Scene, judge: Judge, when: Literal["before", "after"]
) -> None:
    await scene.process.start()
    end = time.monotonic() + (40 if FULL else 5)
    struck = 0
    while struck < STRIKES and time.monotonic() < end:
        scene.proxy.trap = Trap(b"COMMIT;", when, times=1)
        await scene.people.go_on(scene.people.chance.uniform(0.1, 0.6))
        struck += scene.proxy.trap.sprung
    scene.proxy.calm()
    await scene.close(judge, Fault.COMMIT, time.time(), tries=struck)
    assert struck


@pytest.mark.chaos
@pytest.mark.fault(Fault.LINK)
async def test_a_line_that_is_reset_again_and_again_loses_nothing(scene: Scene, judge: Judge) -> None:
    await scene.process.start()
    for _ in range(STRIKES):
        await scene.people.go_on(scene.people.chance.uniform(0.1, 0.6))
        scene.proxy.reset() if scene.people.chance.random() < 0.5 else scene.proxy.drop()
    await scene.close(judge, Fault.LINK, time.time(), tries=STRIKES)


@pytest.mark.chaos
@pytest.mark.fault(Fault.LINK)
async def test_a_line_that_freezes_is_given_up(scene: Scene, judge: Judge) -> None:
    await scene.process.start()
    await scene.people.go_on(0.5)
    scene.proxy.freeze()
    await scene.people.go_on(8.0, pause=0.5)
    scene.proxy.thaw()
    scene.proxy.reset()
    await scene.close(judge, Fault.LINK, time.time())


@pytest.mark.chaos
@pytest.mark.fault(Fault.LINK)
async def test_a_line_that_carries_byte_by_byte_is_only_slow(scene: Scene, judge: Judge) -> None:
    scene.proxy.there = scene.proxy.back = Weather(piece=7)
    await scene.process.start()
    await scene.people.go_on(5.0)
    await scene.close(judge, Fault.LINK, time.time())
