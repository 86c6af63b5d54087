"""Finding 8: what a credential opened ends with its right."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from gateway.config.machine import SystemClock
from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.people.access import Access
from gateway.flow.signals import Signals
from gateway.store.connection.listener import Listener
from gateway.store.people import pairings, principals, tokens
from gateway.web import site
from tests.journeys.process import GatewayProcess
from tests.web.conftest import Running, Web
from tests.web.scripted import Wait

PATIENCE = 30
QUESTION = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}


@dataclass
class Later(SystemClock):
    """The real time, moved on by a test; no bucket of wrong guesses fills up meanwhile."""

    by: timedelta = timedelta()

    def now(self) -> datetime:
        return super().now() + self.by

    def monotonic(self) -> float:
        return 0.0


class Streams:
    """Open streams; each has sent something."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def open(self, client: httpx.AsyncClient, path: str, method: str = "GET", **more: object) -> "Stream":
        answer = await self._stack.enter_async_context(client.stream(method, path, **more))
        assert answer.status_code == 200, answer.status_code
        stream = Stream(answer.aiter_bytes())
        await anext(stream.pieces)
        return stream


@dataclass
class Stream:
    pieces: AsyncIterator[bytes]

    async def ends(self) -> None:
        async with asyncio.timeout(PATIENCE):
            async for _ in self.pieces:
                pass

    async def goes_on(self) -> None:
        """It outlives a few looks."""
        ended = asyncio.create_task(self.ends())
        done, _ = await asyncio.wait({ended}, timeout=3 * site.LOOK_SECONDS)
        assert not done
        ended.cancel()


@pytest.fixture
async def streams() -> AsyncIterator[Streams]:
    async with AsyncExitStack() as stack:
        yield Streams(stack)


async def bearer(web: Web, name: str, *scopes: str) -> dict[str, str]:
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, name, scopes or ["chat"])
    return {"Authorization": f"Bearer {plain}"}


@pytest.mark.parametrize(
    "path",
    [
        "/chat/events",
        "/people/events",
        "/channels/events",
        "/logs/events",
        "/checks/events",
        "/tokens/events",
    ],
)
async def test_signing_out_closes_the_streams_of_this_browser_and_no_other(web: Web, streams: Streams, path: str):
    async with web.sign_in() as one, web.sign_in() as other:
        closed, kept = await streams.open(one, path), await streams.open(other, path)
        await one.post("/logout")
        await closed.ends()
        await kept.goes_on()


async def test_signing_out_everywhere_closes_all(web: Web, streams: Streams):
    async with web.sign_in() as one, web.sign_in() as other:
        there = await streams.open(other, "/chat/events")
        await one.post("/logout?everywhere=true")
        await there.ends()


async def test_a_revoked_token_loses_its_streams_and_another_keeps_its_own(web: Web, streams: Streams):
    phone, laptop = await bearer(web, "phone"), await bearer(web, "laptop")
    closed = await streams.open(web.client, "/api/events", headers=phone)
    kept = await streams.open(web.client, "/api/events", headers=laptop)
    assert await tokens.revoke(web.backend.database, "phone")
    await closed.ends()
    await kept.goes_on()


async def test_a_revoked_token_is_told_no_more_of_an_answer(web: Web, streams: Streams):
    middle = Wait()
    web.model.says("The secret ", middle, "is 42.")
    headers = await bearer(web, "phone")
    answer = await streams.open(
        web.client, "/v1/chat/completions", "POST", json={**QUESTION, "stream": True}, headers=headers
    )
    await middle.reached.wait()
    await tokens.revoke(web.backend.database, "phone")
    await answer.ends()
    middle.over.set()


@pytest.mark.parametrize("way", ["completion", "answer"])
async def test_a_revoked_token_does_not_get_what_it_waits_for(web: Web, way: str):
    middle = Wait()
    web.model.says("The secret ", middle, "is 42.")
    headers = await bearer(web, "phone")
    if way == "completion":
        asked = web.client.post("/v1/chat/completions", json=QUESTION, headers=headers)
    else:
        body = {"text": "hi", "client_id": "1"}
        sent = (await web.client.post("/api/messages", json=body, headers=headers)).json()
        asked = web.client.get(f"/api/answers/{sent['inbox_id']}?wait=60", headers=headers)
    waiting = asyncio.create_task(asked)
    await middle.reached.wait()
    await asyncio.sleep(0.5)  # the request has begun to wait; if it has not, it is refused all the same
    await tokens.revoke(web.backend.database, "phone")
    async with asyncio.timeout(PATIENCE):
        refused = await waiting
    middle.over.set()
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert "42" not in refused.text


@pytest.mark.parametrize("later", [timedelta(hours=13), timedelta(days=31)], ids=["idle", "too old"])
async def test_an_expired_session_loses_its_streams(running: Running, streams: Streams, later: timedelta):
    clock = Later()
    started = await running.start(clock=clock)
    async with started.web.sign_in() as browser:
        stream = await streams.open(browser, "/chat/events")
        clock.by = later
        await stream.ends()
    await started.stop()


async def set_owner(web: Web) -> None:
    async with web.backend.database.transaction() as tx:
        owner = await principals.lock_owner(tx)
        await principals.update(tx, replace(owner, identities=("telegram:666",)))


async def part(web: Web) -> None:
    async with web.backend.database.transaction() as tx:
        owner = await principals.lock_owner(tx)
        await principals.update(tx, replace(owner, identities=owner.identities[:-1]))


async def narrow(web: Web) -> None:
    async with web.backend.database.connection() as conn:
        await conn.execute("update api_tokens set scopes = '{read}'")


async def make_a_member(web: Web) -> None:
    async with web.backend.database.connection() as conn:
        await conn.execute("update principals set role = 'member'")


@pytest.mark.parametrize("change", [set_owner, part, narrow, make_a_member])
async def test_a_changed_role_closes_streams(web: Web, streams: Streams, change: Callable[[Web], Awaitable[None]]):
    await tell_accounts(web, "telegram:1", "slack:U1")
    async with web.sign_in() as browser:
        page = await streams.open(browser, "/chat/events")
        program = await streams.open(web.client, "/api/events", headers=await bearer(web, "phone"))
        await change(web)
        await page.ends()
        await program.ends()


async def tell_accounts(web: Web, *identities: str) -> None:
    async with web.backend.database.transaction() as tx:
        await principals.update(tx, replace(await principals.lock_owner(tx), identities=identities))


async def test_one_more_account_takes_nothing_away(web: Web, streams: Streams):
    async with web.sign_in() as browser:
        page = await streams.open(browser, "/chat/events")
        async with web.backend.database.transaction() as tx:
            await principals.add_identity(tx, web.backend.owner.id, "slack:U1")
        await page.goes_on()


async def test_a_token_of_a_member_opens_no_stream_of_the_owners(web: Web):
    database = web.backend.database
    asked = Inbound(
        Address("telegram", "bot", "7"), Sender("7", "Bo"), "hi", "m7", datetime.now(UTC), private=True, as_owner=True
    )
    await database.run(lambda tx: pairings.request(tx, asked, "ABCDEFGH"))
    admitted = await web.backend.channels.pairing.approve("ABCDEFGH")
    assert admitted.principal_id is not None
    _, plain = await tokens.create(database, admitted.principal_id, "bo", ["chat"])
    refused = await web.client.get("/api/events", headers={"Authorization": f"Bearer {plain}"})
    assert refused.status_code == 401


async def test_a_member_whose_pairing_is_denied_loses_the_streams_of_its_tokens(web: Web, streams: Streams):
    database, people = web.backend.database, web.path.people
    people.allow({"telegram": Access("pairing")})
    asked = Inbound(
        Address("telegram", "bot", "7"), Sender("7", "Bo"), "hi", "m7", datetime.now(UTC), private=True, as_owner=True
    )
    await database.run(lambda tx: pairings.request(tx, asked, "ABCDEFGH"))
    admitted = await web.backend.channels.pairing.approve("ABCDEFGH")
    await people.refresh(database)
    assert admitted.principal_id is not None
    _, plain = await tokens.create(database, admitted.principal_id, "bo", ["chat"])
    web.model.says("Once", Wait())
    asking = {"model": "default", "stream": True, "messages": [{"role": "user", "content": "a tale"}]}
    headers = {"Authorization": f"Bearer {plain}"}
    stream = await streams.open(web.client, "/v1/chat/completions", "POST", headers=headers, json=asking)
    await web.backend.channels.pairing.deny(str(admitted.id))
    await stream.ends()


async def test_a_right_that_ended_before_the_stream_began_counts_too(web: Web):
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "phone", ["chat"])
    row = await tokens.find(web.backend.database, plain)
    await tokens.revoke(web.backend.database, "phone")
    looking = site.Rights(web.backend.database, web.backend.clock)
    serving = asyncio.create_task(looking.serve(asyncio.Event()))
    with looking.hold(row) as ended:
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
    serving.cancel()


async def test_the_database_tells_so_that_nobody_waits_for_the_next_look(
    running: Running, streams: Streams, dsn: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(site, "LOOK_SECONDS", 3600.0)
    signals = Signals()
    started = await running.start(signals=signals)
    connected = asyncio.Event()
    listener = Listener(dsn, ["supaclaw_people"], lambda *_: signals.people_changed(), connected.set)
    listening = asyncio.create_task(listener.run())
    await connected.wait()
    stream = await streams.open(started.web.client, "/api/events", headers=await bearer(started.web, "phone"))
    await tokens.revoke(started.web.backend.database, "phone")
    await stream.ends()
    listening.cancel()
    await started.stop()


async def test_a_command_in_another_process_closes_a_stream(gateway: GatewayProcess, streams: Streams):
    token = (await gateway.command("token", "create", "phone", "--scope", "chat")).told.strip()
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60, trust_env=False) as client:
        stream = await streams.open(client, "/api/events", headers={"Authorization": f"Bearer {token}"})
        assert (await gateway.command("token", "revoke", "phone")).code == 0
        await stream.ends()
        again = await client.get("/api/events", headers={"Authorization": f"Bearer {token}"})
        assert again.status_code == 401
