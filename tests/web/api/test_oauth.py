"""Clients of `/mcp` that get their token by OAuth, with the official client; and what they must not get."""

import base64
import hashlib
import json
import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from gateway.store.people import tokens
from tests.web.conftest import Web

BACK = "http://127.0.0.1:7777/back"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


class Storage:
    """The tokens and the registration that a program keeps."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def returned(answer: httpx.Response) -> dict[str, str]:
    """The address and the parameters with which the browser returns to the program."""
    assert answer.status_code == 200, answer.text
    to = answer.headers["refresh"].removeprefix("0; url=")
    return {"to": to.partition("?")[0], **{key: value for key, [value] in parse_qs(urlsplit(to).query).items()}}


async def decide(browser: httpx.AsyncClient, asked: dict[str, str], *grant: str) -> dict[str, str]:
    """Grant these scopes on the page that the request shows."""
    page = await browser.get("/oauth/authorize", params=asked)
    form = page.text.partition("<form")[2].partition("</form>")[0]
    assert page.status_code == 200, page.text
    fields = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form)
    assert {name: unescape(value) for name, value in fields} == asked
    assert set(grant) <= set(re.findall(r'name="grant" value="(\w+)"', form))
    return returned(await browser.post("/oauth/authorize", data={**asked, "grant": list(grant)}))


async def registered(web: Web, *redirects: str, **more: str) -> str:
    said = {"client_name": "Zed", "redirect_uris": redirects or (BACK,), **more}
    answer = await web.client.post("/oauth/register", json=said)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["client_id"])


def request_of(web: Web, client: str, **other: str | None) -> dict[str, str]:
    asked = {"client_id": client, "redirect_uri": BACK, "response_type": "code", "state": "s1", "scope": "memory files"}
    asked |= {"code_challenge": CHALLENGE, "code_challenge_method": "S256", "resource": f"{web.url}/mcp"}
    return {key: value for key, value in {**asked, **other}.items() if value is not None}


async def exchange(web: Web, client: str, code: str, **other: str) -> tuple[int, dict[str, Any]]:
    fields = {"grant_type": "authorization_code", "client_id": client, "code": code, "redirect_uri": BACK}
    answer = await web.client.post("/oauth/token", data={**fields, "code_verifier": VERIFIER, **other})
    return answer.status_code, answer.json()


async def renew(web: Web, client: str, token: str) -> tuple[int, dict[str, Any]]:
    fields = {"grant_type": "refresh_token", "client_id": client, "refresh_token": token}
    answer = await web.client.post("/oauth/token", data=fields)
    return answer.status_code, answer.json()


async def opened(web: Web, token: str) -> int:
    """The status that `/mcp` answers to this token."""
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    return (await web.client.post("/mcp", json=listing, headers=headers)).status_code


async def test_the_official_client_connects_renews_and_is_revoked_on_the_page(web: Web) -> None:
    storage, brought = Storage(), dict[str, str]()
    async with web.sign_in() as browser:

        async def go(address: str) -> None:
            asked = {key: value for key, [value] in parse_qs(urlsplit(address).query).items()}
            brought.update(await decide(browser, asked, "memory"))

        async def come_back() -> AuthorizationCodeResult:
            return AuthorizationCodeResult(code=brought["code"], state=brought["state"])

        about = OAuthClientMetadata.model_validate({"client_name": "Zed", "redirect_uris": [BACK]})
        auth = OAuthClientProvider(f"{web.url}/mcp", about, storage, go, come_back)
        async with (
            httpx2.AsyncClient(auth=auth, timeout=60) as client,
            streamable_http_client(f"{web.url}/mcp", http_client=client) as streams,
            ClientSession(*streams) as session,
        ):
            await session.initialize()
            offered = [tool.name for tool in (await session.list_tools()).tools]
            first = storage.tokens
            auth.context.token_expiry_time = 1.0
            assert offered == [tool.name for tool in (await session.list_tools()).tools]
        assert offered == ["memory_search", "memory_get", "remember", "forget"]
        assert brought["to"] == BACK
        assert first
        assert storage.tokens
        assert first.refresh_token != storage.tokens.refresh_token
        assert (await opened(web, first.access_token), await opened(web, storage.tokens.access_token)) == (401, 200)

        [row] = await tokens.list_all(web.backend.database)
        assert row.name.startswith("Zed ")
        assert (row.scopes, row.as_owner, row.shared, row.expires_at is None) == (("memory",), False, False, False)
        assert f"Revoke {row.name}" in (await browser.get("/tokens")).text
        assert (await browser.post("/tokens/revoke", data={"name": row.name})).status_code == 204
        assert await opened(web, storage.tokens.access_token) == 401
        assert storage.client
        assert storage.tokens.refresh_token
        again = await renew(web, storage.client.client_id, storage.tokens.refresh_token)
        assert (again[0], again[1]["error"]) == (400, "invalid_grant")


async def test_a_code_and_a_refresh_token_count_once_for_their_client_alone(web: Web) -> None:
    client, other = await registered(web), await registered(web, client_name="Other")
    asked = request_of(web, client)
    async with web.sign_in() as browser:

        async def code() -> str:
            return (await decide(browser, asked, "files"))["code"]

        assert (await exchange(web, other, await code()))[1]["error"] == "invalid_grant"
        assert (await exchange(web, client, await code(), code_verifier="w" * 43))[1]["error"] == "invalid_grant"
        assert (await exchange(web, client, await code(), redirect_uri=f"{BACK}2"))[0] == 400
        assert (await exchange(web, client, "guessed"))[1]["error"] == "invalid_grant"
        spent = await code()
        status, issued = await exchange(web, client, spent)
        assert (status, issued["scope"]) == (200, "files")
        assert (await exchange(web, client, spent))[1]["error"] == "invalid_grant"
    refresh = issued["refresh_token"]
    assert (await renew(web, other, refresh))[1]["error"] == "invalid_grant"
    status, renewed = await renew(web, client, refresh)
    assert (status, renewed["scope"]) == (200, "files")
    assert (await renew(web, client, refresh))[1]["error"] == "invalid_grant"
    assert (await opened(web, issued["access_token"]), await opened(web, renewed["access_token"])) == (401, 200)
    assert len(await tokens.list_all(web.backend.database)) == 1


async def test_a_client_revokes_its_own_refresh_token_and_with_it_the_access_token(web: Web) -> None:
    client, other = await registered(web), await registered(web, client_name="Other")
    ends = (await web.client.get("/.well-known/oauth-authorization-server")).json()["revocation_endpoint"]
    assert ends == f"{web.url}/oauth/revoke"
    async with web.sign_in() as browser:
        code = (await decide(browser, request_of(web, client), "files"))["code"]
    issued = (await exchange(web, client, code))[1]
    access, refresh = issued["access_token"], issued["refresh_token"]

    async def revoke(**fields: str) -> tuple[int, str]:
        answer = await web.client.post(ends, data=fields)
        return answer.status_code, answer.json()["error"] if answer.content else ""

    assert await revoke(token=refresh) == (401, "invalid_client")
    assert await revoke(token=refresh, client_id=other) == (200, "")
    assert await revoke(token=access, client_id=client) == (400, "unsupported_token_type")
    assert await opened(web, access) == 200
    assert await revoke(token=refresh, client_id=client, token_type_hint="refresh_token") == (200, "")
    assert await revoke(token=refresh, client_id=client) == (200, "")
    assert await opened(web, access) == 401
    assert (await renew(web, client, refresh))[1]["error"] == "invalid_grant"
    assert await tokens.list_all(web.backend.database) == []


async def test_nothing_is_granted_without_the_owner_or_beyond_what_was_asked(web: Web) -> None:
    client = await registered(web)
    asked = request_of(web, client)
    shown = await web.client.get("/oauth/authorize", params=asked)
    assert shown.headers["location"].startswith(f"{web.page}/oauth/authorize?client_id=")
    assert (await web.client.post("/oauth/authorize", data=asked | {"grant": "memory"})).status_code in (401, 403)
    foreign = {**web.at_page, "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    async with web.sign_in() as browser:
        refused = await browser.post("/oauth/authorize", data=asked | {"grant": "memory"}, headers=foreign)
        assert refused.json()["error"]["code"] == "foreign_origin"
        declined = returned(await browser.post("/oauth/authorize", data=asked))
        assert (declined["error"], declined["state"]) == ("access_denied", "s1")
        more = returned(await browser.post("/oauth/authorize", data=asked | {"grant": ["admin", "chat", "files"]}))
        assert (await exchange(web, client, more["code"]))[1]["scope"] == "files"


async def test_a_link_decides_nothing_in_the_owners_place(web: Web) -> None:
    asked = request_of(web, await registered(web), grant="files", extra='"><script>')
    async with web.sign_in() as browser:
        page = (await browser.get("/oauth/authorize", params=asked)).text
    assert "<script>" not in page
    for form in page.split("<form")[1:]:
        hidden = re.findall(r'type="hidden" name="([^"]*)"', form)
        assert "state" in hidden
        assert "grant" not in hidden


async def test_a_bad_request_is_shown_to_the_owner_and_sends_nobody_on(web: Web) -> None:
    client, evil = await registered(web), "http://127.0.0.1:9/mcp"
    hidden = base64.urlsafe_b64encode(json.dumps({"client_id": "x", "redirect_uris": ["javascript:x"]}).encode())
    async with web.sign_in() as browser:
        assert (await decide(browser, request_of(web, client, redirect_uri=BACK.replace("7777", "8")), "files"))["code"]
        for other in (
            {"redirect_uri": "https://evil.example/back"},
            {"redirect_uri": "http://127.0.0.1:7777/elsewhere"},
            {"redirect_uri": "http://x@127.0.0.1:7777/back"},
            {"redirect_uri": "http://127.0.0.1.evil.example/back"},
            {"state": None},
            {"code_challenge": None},
            {"code_challenge_method": "plain"},
            {"resource": None},
            {"resource": "https://evil.example/mcp"},
            {"resource": evil},
            {"scope": "admin"},
            {"client_id": "unknown"},
            {"client_id": hidden.decode()},
        ):
            asked = request_of(web, client, **other)
            for answer in (
                await browser.get("/oauth/authorize", params=asked),
                await browser.post("/oauth/authorize", data=asked | {"grant": "files"}),
            ):
                assert "code" not in parse_qs(urlsplit(answer.headers.get("refresh", "")).query), other
            assert (await browser.get("/oauth/authorize", params=asked)).status_code == 400, other
    assert await tokens.list_all(web.backend.database) == []


async def test_registering_costs_nothing_and_takes_safe_addresses_only(web: Web) -> None:
    before = await web.backend.database.read(lambda conn: conn.fetchval("select count(*) from meta"))
    ids = {await registered(web, client_name=f"client {number}") for number in range(50)}
    assert len(ids) == 50
    assert await web.backend.database.read(lambda conn: conn.fetchval("select count(*) from meta")) == before
    for uri in (
        "http://evil.example/",
        "javascript:alert(1)",
        "data:text/html,x",
        f"{BACK}#x",
        "http://a:b@localhost/",
    ):
        answer = await web.client.post("/oauth/register", json={"redirect_uris": [uri]})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_redirect_uri"), uri
    assert (
        await web.client.post("/oauth/register", json={"redirect_uris": ["https://a.example"] * 6})
    ).status_code == 400
    assert (await web.client.post("/oauth/register", content=b"x" * 5_000)).status_code == 413
    assert await registered(web, "https://claude.example/back", "cursor://callback")
