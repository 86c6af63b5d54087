"""Finding 7: however many wrong credentials come from an address, the right one is let in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from gateway.store.connection.pool import Database
from gateway.store.people import tokens
from gateway.web.http.limits import CredentialLookups
from tests.web.conftest import BEARER, Web
from tests.web.conftest import running as running
from tests.web.conftest import web as web


async def guess(web: Web, times: int = 40) -> set[int]:
    """Fail by every door, all from the address of the owner."""
    codes = set()
    for number in range(times):
        wrong = {"Authorization": f"Bearer claw_{number}"}
        codes.add((await web.client.get("/api/status", headers=wrong)).status_code)
        link = await web.client.post("/login", json={"secret": f"no{number}"}, headers=web.at_page)
        codes.add(link.status_code)
        signed = await web.client.get("/checks/events", headers={**web.at_page, "Cookie": f"claw=no{number}"})
        codes.add(signed.status_code)
    return codes


async def test_guesses_lock_no_valid_credential_out(web: Web) -> None:
    _, before = await tokens.create(web.backend.database, web.backend.owner.id, "used before", ["read"])
    assert (await web.client.get("/api/status", headers={"Authorization": f"Bearer {before}"})).status_code == 200
    async with web.sign_in() as browser:
        assert await guess(web) == {401, 429}
        _, fresh = await tokens.create(web.backend.database, web.backend.owner.id, "never used", ["read"])
        for plain in (before, fresh):
            answer = await web.client.get("/api/status", headers={"Authorization": f"Bearer {plain}"})
            assert answer.status_code == 200
        assert (await web.client.get("/api/status", headers=BEARER)).status_code == 200
        assert (await browser.get("/login/state")).json() == {"signed_in": True}
        assert (await browser.post("/chat", data={"text": "hi", "client_id": "1"})).status_code == 202
    async with web.sign_in() as browser:
        assert (await browser.get("/login/state")).json() == {"signed_in": True}


async def test_a_revoked_credential_is_refused_though_it_was_good_before(web: Web) -> None:
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "reader", ["read"])
    headers = {"Authorization": f"Bearer {plain}"}
    assert (await web.client.get("/api/status", headers=headers)).status_code == 200
    await tokens.revoke(web.backend.database, "reader")
    assert (await web.client.get("/api/status", headers=headers)).status_code == 401
    assert await guess(web) == {401, 429}
    assert (await web.client.get("/api/status", headers=headers)).status_code == 429


class Counting(Database):
    """Notes how many connections are in use at once, and holds each until it may go on."""

    def __init__(self, real: Database) -> None:
        self._real = real
        self.in_use = self.most = 0
        self.go_on = asyncio.Event()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        self.in_use += 1
        self.most = max(self.most, self.in_use)
        try:
            await self.go_on.wait()
            async with self._real.connection() as conn:
                yield conn
        finally:
            self.in_use -= 1


async def test_a_flood_of_wrong_credentials_keeps_one_connection_busy_and_good_ones_pass_it(web: Web) -> None:
    counting, lookups = Counting(web.backend.database), CredentialLookups()
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "good", ["read"])
    counting.go_on.set()
    assert await lookups.find(counting, plain) is not None
    counting.go_on.clear()
    wrong = [asyncio.create_task(lookups.find(counting, f"wrong {number}")) for number in range(100)]
    await asyncio.sleep(0)
    good = asyncio.create_task(lookups.find(counting, plain))
    await asyncio.sleep(0)
    assert counting.in_use == 2
    counting.go_on.set()
    assert await good is not None
    assert set(await asyncio.gather(*wrong)) == {None}
    assert counting.most == 2


async def test_a_revoked_credential_is_looked_up_like_a_wrong_one(web: Web) -> None:
    lookups, database = CredentialLookups(), web.backend.database
    _, plain = await tokens.create(database, web.backend.owner.id, "good", ["read"])
    assert await lookups.find(database, plain) is not None
    await tokens.revoke(database, "good")
    assert await lookups.find(database, plain) is None
    assert not lookups._valid
