from collections.abc import AsyncIterator
from ipaddress import ip_network

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from gateway.config.machine import SystemClock
from gateway.web.http.headers import ProxyHeaders, hosts_of, page_url
from tests.web.conftest import BEARER, PAGE_NAME, Running, Web

PUBLIC = "https://claw.example.org"
HOST = "claw.example.org"


class Unhurried(SystemClock):
    """However long guessing takes here, no time passes for the one that counts."""

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
async def proxied(running: Running) -> AsyncIterator[Web]:
    """A gateway that knows of a reverse proxy in front of it."""
    started = await running.start(public_url=PUBLIC, clock=Unhurried())
    yield started.web
    await started.stop()


def through_the_proxy(web: Web, client: str = "203.0.113.9", **headers: str) -> httpx.AsyncClient:
    """What arrives at the gateway when a browser somewhere opens the public address."""
    sent = {"Host": HOST, "X-Forwarded-For": client, **headers}
    return httpx.AsyncClient(base_url=web.url, headers=sent, timeout=10)


async def sign_in(web: Web, browser: httpx.AsyncClient) -> httpx.Response:
    secret = web.backend.access.links.issue(PUBLIC, web.backend.clock.now()).partition("#t=")[2]
    return await browser.post("/login", json={"secret": secret})


def test_a_default_port_may_be_named_or_not():
    assert hosts_of(PUBLIC) == {"claw.example.org", "claw.example.org:443"}
    assert hosts_of("https://claw.example.org:8443") == {"claw.example.org:8443"}
    assert hosts_of("http://localhost") == {"localhost", "localhost:80"}
    assert hosts_of(None) == frozenset()


@pytest.mark.parametrize(
    ("base", "page"),
    [
        ("http://127.0.0.1:8787", f"http://{PAGE_NAME}:8787"),
        ("http://[::1]:8787/", f"http://{PAGE_NAME}:8787"),
        ("http://localhost", f"http://{PAGE_NAME}"),
        ("https://localhost:8443", "https://localhost:8443"),
        (PUBLIC, PUBLIC),
    ],
)
def test_only_a_loopback_address_without_tls_is_replaced_by_the_pages_own(base: str, page: str):
    assert page_url(base, PAGE_NAME) == page


async def test_behind_a_proxy_on_localhost_the_page_has_its_own_name_too(running: Running):
    started = await running.start(public_url=page_url("http://localhost:8080", PAGE_NAME), clock=Unhurried())
    web = started.web
    link = (await web.client.post("/api/login-links", headers=BEARER)).json()["url"]
    assert link.startswith(f"http://{PAGE_NAME}:8080/login#t=")
    secret = {"secret": link.partition("#t=")[2]}
    for host, code in (("localhost:8080", 403), (f"{PAGE_NAME}:8080", 200)):
        async with through_the_proxy(web, Host=host, Origin=f"http://{host}") as browser:
            assert (await browser.post("/login", json=secret)).status_code == code
            assert (await browser.get("/login/state")).json() == {"signed_in": code == 200}
    async with through_the_proxy(web, Host=f"{PAGE_NAME}:8080") as guesser:
        assert [await guess(guesser) for _ in range(25)][-1] == 429
    assert await guess(web.client) == 401
    await started.stop()


@pytest.mark.parametrize("host", ["claw.example.org", "Claw.example.org", "claw.example.org:443"])
async def test_the_public_host_is_served(proxied: Web, host: str):
    assert (await proxied.client.get("/health", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["claw.example.org:8443", "www.claw.example.org", "example.org"])
async def test_no_host_like_it_is(proxied: Web, host: str):
    assert (await proxied.client.get("/health", headers={"Host": host})).status_code == 421


async def test_without_it_the_public_host_is_a_foreign_one(web: Web):
    assert (await web.client.get("/health", headers={"Host": HOST})).status_code == 421


async def test_this_machine_is_served_as_before(proxied: Web):
    async with proxied.sign_in() as browser:
        assert "claw" in browser.cookies
        assert (await browser.post("/chat", data={"text": "hi", "client_id": "1"})).status_code == 202


async def test_a_tool_that_is_a_request_to_the_api_works_behind_it(proxied: Web):
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_tasks", "arguments": {}}}
    async with through_the_proxy(proxied, Accept="application/json, text/event-stream", **BEARER) as program:
        answer = await program.post("/mcp", json=call)

    assert answer.json()["result"]["structuredContent"] == {"result": []}


async def test_a_link_leads_to_the_public_address(proxied: Web):
    answer = await proxied.client.post("/api/login-links", headers=BEARER)

    assert answer.json()["url"].startswith(f"{PUBLIC}/login#t=")


async def test_behind_https_the_cookie_is_secure_and_bound_to_the_host(proxied: Web):
    async with through_the_proxy(proxied, Origin=PUBLIC) as browser:
        answer = await sign_in(proxied, browser)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-claw=")
        assert "; Secure" in cookie

        browser.headers["Cookie"] = cookie.partition(";")[0]
        assert (await browser.post("/chat", data={"text": "hi", "client_id": "1"})).status_code == 202


@pytest.mark.parametrize("origin", ["http://claw.example.org", "https://evil.example", "https://claw.example.org:8443"])
async def test_only_the_public_page_itself_may_post(proxied: Web, origin: str):
    async with through_the_proxy(proxied, Origin=origin) as browser:
        assert (await sign_in(proxied, browser)).status_code == 403


async def test_a_plain_cookie_is_none_behind_https(proxied: Web):
    async with (
        proxied.sign_in() as local,
        through_the_proxy(proxied, Cookie=f"claw={local.cookies['claw']}") as browser,
    ):
        assert (await browser.get("/login/state")).json() == {"signed_in": False}


async def guess(browser: httpx.AsyncClient, **headers: str) -> int:
    return (await browser.get("/api/status", headers={"Authorization": "Bearer no", **headers})).status_code


async def test_each_client_behind_the_proxy_guesses_on_its_own_account(proxied: Web):
    async with through_the_proxy(proxied) as guesser, through_the_proxy(proxied, "203.0.113.10") as other:
        assert [await guess(guesser) for _ in range(25)][-1] == 429

        assert await guess(other) == 401
        assert await guess(proxied.client) == 401


async def test_a_client_cannot_pretend_to_be_another(proxied: Web):
    async with through_the_proxy(proxied) as guesser:
        forged = [await guess(guesser, **{"X-Forwarded-For": f"198.51.100.{n}, 203.0.113.9"}) for n in range(25)]

    assert forged[-1] == 429


@pytest.mark.parametrize("told", ["", "unknown", "203.0.113.9, unknown"])
async def test_a_proxy_that_names_nobody_is_the_client_itself(proxied: Web, told: str):
    async with through_the_proxy(proxied, told) as guesser:
        assert [await guess(guesser) for _ in range(25)][-1] == 429

    assert await guess(proxied.client) == 429


async def test_a_proxy_that_sends_another_host_still_names_the_client(proxied: Web):
    async with through_the_proxy(proxied, Host="localhost") as guesser:
        assert [await guess(guesser) for _ in range(25)][-1] == 429

    assert await guess(proxied.client) == 401


async def test_proxies_one_behind_another_are_not_the_client(proxied: Web):
    codes = [
        await guess(proxied.client, **{"X-Forwarded-For": f"203.0.113.9, 127.0.0.{n}, ::ffff:127.0.0.1"})
        for n in range(1, 26)
    ]

    assert codes[-1] == 429
    assert await guess(proxied.client) == 401


async def test_without_a_public_address_nothing_forwarded_is_believed(web: Web):
    codes = [await guess(web.client, **{"X-Forwarded-For": f"198.51.100.{n}"}) for n in range(25)]

    assert codes[-1] == 429


@pytest.mark.parametrize(
    ("peer", "forwarded", "seen"),
    [
        ("10.1.2.3", "198.51.100.1, 203.0.113.9", "203.0.113.9"),
        ("10.1.2.3", "203.0.113.9, 10.4.4.4", "203.0.113.9"),
        ("::ffff:10.1.2.3", "203.0.113.9", "203.0.113.9"),
        ("127.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("192.0.2.7", "203.0.113.9", "Only web.proxies may connect."),
    ],
)
async def test_a_proxy_elsewhere_names_the_client_and_nobody_else_connects(peer: str, forwarded: str, seen: str):
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(f"{scope['scheme']} {scope['client'][0]}")(scope, receive, send)

    guarded = ProxyHeaders(app, PUBLIC, (ip_network("10.0.0.0/8"),))
    transport = httpx.ASGITransport(guarded, client=(peer, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://claw.example.org") as client:
        told = (await client.get("/", headers={"X-Forwarded-For": forwarded})).text

    assert told.removeprefix("https ") == seen
