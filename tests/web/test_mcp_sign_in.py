"""Connecting an MCP server by OAuth: on the page, in one browser; what the servers say of themselves isn't believed."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import pytest
from httpx import AsyncClient, Response

from tests.fakes.mcp_server import FakeMcp
from tests.fakes.oauth_server import FakeOAuth
from tests.flow.turn.test_mcp import configure
from tests.web.conftest import Web


@asynccontextmanager
async def protected(web: Web, *more: str, **server: Any) -> AsyncIterator[FakeOAuth]:
    """With a server that the settings name, and that wants a sign-in."""
    fake = FakeMcp()
    fake.add("weather", "Tells the weather.")
    async with fake.running(), FakeOAuth(fake).running() as oauth:
        configure(web.path, fake, oauth.place, *more, **server)
        try:
            yield oauth
        finally:
            await web.path.mcp_connections.close()


async def begin(browser: AsyncClient) -> Response:
    return await browser.post("/tools/servers/w/sign-in")


async def address_in(browser: AsyncClient) -> str:
    answer = await begin(browser)
    found = re.search(r'href="([^"]+)"', answer.text)
    assert found, answer.text
    return unescape(found[1])


async def finish(browser: AsyncClient, answer: dict[str, str]) -> Response:
    return await browser.post("/tools/servers/finish", data=answer)


async def connect(browser: AsyncClient, oauth: FakeOAuth) -> None:
    await browser.post("/tools/servers/w/connect")
    answer = await finish(browser, oauth.consent(await address_in(browser)))
    assert (answer.status_code, answer.headers["location"]) == (303, "/tools#server-w")


async def state(browser: AsyncClient) -> str:
    await browser.post("/tools/servers/w/connect")
    row = (await browser.get("/tools")).text.partition('id="server-w"')[2].partition("</article>")[0]
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", row))


async def test_a_server_is_connected_used_renewed_and_disconnected(web: Web) -> None:
    async with protected(web) as oauth, web.sign_in() as browser:
        assert "waits for you to sign in" in await state(browser)
        address = await address_in(browser)
        back = await browser.get("/oauth/mcp", params=oauth.consent(address))
        assert 'action="/tools/servers/finish"' in back.text
        await connect(browser, oauth)
        assert "connected" in await state(browser)

        [registered] = oauth.asked_for("/registration")[1:]
        assert registered["redirect_uris"] == [f"http://127.0.0.1:{web.port}/oauth/mcp"]
        exchanged = oauth.asked_for("/token")[-1]
        assert exchanged["resource"] == oauth.protects.url
        [secret] = [each for each in web.path.secrets.stored if each.row.facts.name == "MCP_w_SIGN_IN"]
        assert secret.row.facts.binding.hosts == (oauth.protects.url.removesuffix("/mcp"),)
        masked = web.path.mask.leaks.clean(f"{oauth.issued[-1]} {oauth.refresh_token}")[0]
        assert masked == "${secret:MCP_w_SIGN_IN} ${secret:MCP_w_SIGN_IN}"

        before, oauth.protects.token = oauth.refresh_token, "ended before its time"
        await web.path.mcp_connections.close()
        assert "connected" in await state(browser)
        assert oauth.asked_for("/token")[-1]["refresh_token"] == before

        assert (await browser.post("/tools/servers/w/sign-out")).status_code == 204
        assert oauth.asked_for("/revocation")[-1]["token"] == oauth.refresh_token
        assert "waits for you to sign in" in await state(browser)
        assert "MCP_w_SIGN_IN" not in {each.row.facts.name for each in web.path.secrets.stored}


async def test_the_answer_counts_once_and_in_the_browser_that_began(web: Web) -> None:
    async with protected(web) as oauth, web.sign_in() as browser, web.sign_in() as other:
        answer = oauth.consent(await address_in(browser))
        refused = await finish(other, answer)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "no_flow")
        assert (await finish(browser, answer)).json()["error"]["code"] == "no_flow"
        answer = oauth.consent(await address_in(browser))
        assert (await finish(browser, {**answer, "iss": "https://evil.example"})).status_code == 400
        assert (await finish(browser, {"state": "guessed", "code": "the-code"})).status_code == 400
        loopback = {"Host": f"127.0.0.1:{web.port}"}
        back = await web.client.get("/oauth/mcp", params=answer, headers=loopback)
        assert back.headers["location"].startswith(f"{web.page}/oauth/mcp?code=the-code&state=")
        assert oauth.issued == []


async def refusal(browser: AsyncClient) -> str:
    answer = await begin(browser)
    assert answer.status_code == 400, answer.text
    return str(answer.json()["error"]["message"])


async def test_what_the_servers_say_of_themselves_is_not_believed(web: Web) -> None:
    async with protected(web) as oauth, web.sign_in() as browser:
        oauth.says = {"issuer": "https://evil.example"}
        assert "refused the sign-in" in await refusal(browser)
        oauth.says, resource = {}, dict(oauth.protects.resource or {})
        oauth.protects.resource = {**resource, "resource": "https://evil.example/mcp"}
        assert "refused the sign-in" in await refusal(browser)
        oauth.protects.resource = {**resource, "authorization_servers": ["http://10.0.0.1/"]}
        assert "private" in await refusal(browser)
        oauth.protects.resource = resource
        oauth.says = {"registration_endpoint": "http://169.254.169.254/register"}
        assert "always blocked" in await refusal(browser)
        oauth.says = {"padding": "x" * 2**21}
        assert "the limit is 1 MB" in await refusal(browser)
        assert oauth.asked == []


async def test_a_server_that_moves_its_sign_in_is_disconnected_first(web: Web) -> None:
    async with protected(web) as oauth, FakeOAuth(oauth.protects).running() as other, web.sign_in() as browser:
        configure(web.path, oauth.protects, oauth.place, other.place)
        oauth.protects.resource = {"resource": oauth.protects.url, "authorization_servers": [oauth.url]}
        await connect(browser, oauth)
        oauth.protects.resource = {"resource": oauth.protects.url, "authorization_servers": [other.url]}
        oauth.protects.token = "another"
        assert "signs in elsewhere than before" in await refusal(browser)
        await browser.post("/tools/servers/w/sign-out")
        await connect(browser, other)


@pytest.mark.parametrize("secret", ["", "app-secret"])
async def test_a_registered_app_and_a_token_without_a_lifetime(web: Web, secret: str) -> None:
    async with protected(web, client_id="app", client_secret=secret) as oauth, web.sign_in() as browser:
        oauth.lasts = None
        await connect(browser, oauth)
        assert oauth.asked_for("/registration") == []
        sent = oauth.asked_for("/token")[-1]
        assert (sent["client_id"], sent.get("client_secret", "")) == ("app", secret)
        assert (await browser.post("/tools/servers/w/sign-out")).status_code == 204
        sent = oauth.asked_for("/revocation")[-1]
        assert (sent["client_id"], sent.get("client_secret", "")) == ("app", secret)
        await connect(browser, oauth)
        oauth.protects.token = "ended"
        await web.path.mcp_connections.close()
        assert "connected" in await state(browser)
        oauth.protects.token, oauth.issued = "ended", ["all revoked"]
        await web.path.mcp_connections.close()
        assert "waits for you to sign in" in await state(browser)
