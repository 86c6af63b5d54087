"""Much of everything: huge messages, floods, crowds, viewers that do not read."""

import asyncio
import random
import socket
import time

import httpx
import psutil
import pytest

from tests.chaos.conftest import Judge
from tests.chaos.faults import Fault
from tests.chaos.impostor import Impostor
from tests.chaos.ledger import Ledger, Outcome
from tests.chaos.people import Telegrammers, crowd
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured, said

MB = 1024 * 1024


def memory(process: GatewayProcess) -> float:
    """MB that are the gateway's own."""
    return float(psutil.Process(process.running.pid).memory_full_info().uss) / MB


@pytest.mark.chaos
@pytest.mark.fault(Fault.HUGE)
async def test_huge_messages_are_bounded(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    process.configure(crowd(telegram, models))
    await process.start()
    people, ledger = Telegrammers(telegram, chance), Ledger(process, telegram)
    people.say(OWNER)
    assert "fin900x" in said(await process.complete("warm up mk900x", key="warm"))
    assert await ledger.settled(30)
    before = memory(process)
    for number in range(5):
        answer = await process.complete(
            "x" * MB + f" mk{901 + number}x", key=f"huge-{number}", session=f"huge-{number}"
        )
        assert answer.status_code in (200, 400, 413), answer.text[:200]
    entities = [{"type": "bold", "offset": n % 4000, "length": 1} for n in range(10_000)]
    telegram.say("y" * 4096, OWNER, entities=entities)
    await telegram.wait_for(lambda tg: not tg.pending)
    people.say(OWNER)
    settled = await ledger.settled(60)
    grown = memory(process) - before
    judge(Fault.HUGE, await ledger.count(people.said, tries=6), f"+{grown:.0f} MB")
    assert settled
    assert grown < 50


@pytest.mark.chaos
@pytest.mark.fault(Fault.FLOOD)
async def test_the_owner_is_answered_in_a_flood_of_members(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    members = range(OWNER + 1, OWNER + 21)
    process.configure(crowd(telegram, models, [OWNER, *members]))
    await process.start()
    people, ledger = Telegrammers(telegram, chance, members, tools=0.0, commands=0.0), Ledger(process, telegram)
    idle = [await owner_waits(telegram, number) for number in range(900_000, 900_005)]
    for _ in range(1000):
        people.say()
    busy = [await owner_waits(telegram, number) for number in range(900_010, 900_015)]
    settled = await ledger.settled(180)
    note = f"owner waits at most {max(busy):.1f} s, idle {max(idle):.1f} s"
    judge(Fault.FLOOD, await ledger.count(people.said, tries=1000), note)
    assert settled


async def owner_waits(telegram: FakeTelegram, number: int) -> float:
    began = time.monotonic()
    telegram.say(f"me mk{number}x", OWNER)
    await telegram.wait_for(lambda tg: any(sent.text.endswith(f"fin{number}x") for sent in tg.sent[-400:]), 180)
    return time.monotonic() - began


@pytest.mark.chaos
@pytest.mark.fault(Fault.CROWD)
async def test_a_thousand_chats_are_all_answered(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    chats = range(1000, 2000)
    config = crowd(telegram, models, chats)
    config["owner"]["telegram"] = "1000"
    process.configure(config)
    await process.start()
    people, ledger = Telegrammers(telegram, chance, chats, tools=0.0), Ledger(process, telegram)
    began = time.monotonic()
    for chat in chats:
        people.say(chat)
    settled = await ledger.settled(180)
    judge(Fault.CROWD, await ledger.count(people.said, tries=1000), f"all within {time.monotonic() - began:.0f} s")
    assert settled


@pytest.mark.chaos
@pytest.mark.fault(Fault.SLOW_READER)
async def test_viewers_that_do_not_read_cost_no_memory(
    process: GatewayProcess, models: FakeModels, judge: Judge
) -> None:
    process.configure(configured(models=models))
    await process.start()
    models.filler_words = 2000
    await process.complete("warm up mk1x", key="warm")
    before = memory(process)
    host, port = process.url.removeprefix("http://").split(":")
    viewers = [await stalled(host, int(port), process) for _ in range(20)]
    try:
        for number in range(2, 42):
            answer = await process.complete(f"talk mk{number}x", key=f"talk-{number}", session="talk")
            assert answer.status_code == 200
        grown = memory(process) - before
    finally:
        for viewer in viewers:
            viewer.close()
    judge(Fault.SLOW_READER, Outcome(tries=20), f"+{grown:.0f} MB")
    assert grown < 50


async def stalled(host: str, port: int, process: GatewayProcess) -> socket.socket:
    """A client that asks for a long stream, with the smallest of windows, and never reads it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    await asyncio.to_thread(client.connect, (host, port))
    body = b'{"model": "default", "stream": true, "messages": [{"role": "user", "content": "go on and on"}]}'
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {process.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    await asyncio.to_thread(client.sendall, head.encode() + body)
    return client


@pytest.mark.fault(Fault.DNS)
@pytest.mark.chaos
async def test_a_name_that_does_not_resolve_is_told_and_holds_up_nobody(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, chance: random.Random, judge: Judge
) -> None:
    config = crowd(telegram, models)
    config["models"]["providers"]["openai"]["base_url"] = "http://no-such-host.invalid/v1"
    process.configure(config)
    await process.start()
    people, ledger = Telegrammers(telegram, chance, tools=0.0), Ledger(process, telegram)
    people.say(OWNER)
    slowest = 0.0
    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        for _ in range(100):
            began = time.perf_counter()
            assert (await client.get(f"{process.url}/health")).status_code == 200
            slowest = max(slowest, time.perf_counter() - began)
            await asyncio.sleep(0.05)
    assert await ledger.settled(90)
    judge(Fault.DNS, await ledger.count(people.said), f"/health at most {slowest * 1000:.0f} ms")
    assert slowest < 1
    assert "No model could answer" in telegram.sent[-1].text


@pytest.mark.fault(Fault.TLS)
@pytest.mark.chaos
@pytest.mark.parametrize("to", ["telegram", "model"])
async def test_a_wrong_certificate_is_sent_nothing(
    process: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    judge: Judge,
    tmp_path_factory: pytest.TempPathFactory,
    to: str,
) -> None:
    async with Impostor(tmp_path_factory.mktemp("tls")) as impostor:
        config = crowd(telegram, models)
        if to == "telegram":
            config["channels"]["telegram"]["api_base"] = impostor.url
        else:
            config["models"]["providers"]["openai"]["base_url"] = f"{impostor.url}/v1"
        process.configure(config)
        await process.spawn()
        await asyncio.wait_for(impostor.met.wait(), 30) if to == "telegram" else await process.hears("ready")
        if to == "model":
            telegram.say("hello mk1x", OWNER)
            await telegram.wait_for(lambda tg: bool(tg.sent), 90)
            assert "No model could answer" in telegram.sent[0].text
        await asyncio.sleep(2)
        judge(Fault.TLS, Outcome(tries=impostor.handshakes))
        assert impostor.handshakes
        assert impostor.heard == b""
        assert process.running.returncode is None
