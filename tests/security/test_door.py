"""Findings 6, 17 and 19: nothing of a body is read before it is clear who sends it, and nobody holds a connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
from fastapi import APIRouter, Depends, FastAPI
from starlette.types import Message, Scope

from gateway.domain.channels.channel import WebhookReply
from gateway.domain.people.credentials import Scope as Right
from gateway.store.people import tokens
from gateway.web.auth import request_guard
from gateway.web.auth.access import PUBLIC_BODY, needs, signed_in
from gateway.web.auth.request_guard import entries
from gateway.web.http import limits
from gateway.web.server import build_app
from tests.web.conftest import BEARER, Running, Web, changed
from tests.web.conftest import running as running
from tests.web.conftest import web as web
from tests.web.test_security import filled, is_public, routes

Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]
WRONG = "Authorization: Bearer claw_wrong\r\n"


# --- without a network: whether the application asks for the body ---


class Unlimited:
    """A connection that has nothing against anybody."""

    def of_client(self, client: str) -> None:
        pass

    def of_caller(self, account: str) -> bool:
        return True


async def status_of(app: FastAPI, method: str, path: str, headers: Mapping[str, str]) -> int:
    """The response to a request whose body must not be asked for."""
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError(f"{method} {path}: the body was read")

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()],
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "state": {"connection": Unlimited()},
    }
    await app(scope, receive, send)
    return int(sent[0]["status"])


CREDENTIALS = [
    {},
    {"authorization": "Bearer claw_wrong"},
    {"authorization": "Basic YTpi"},
    {"cookie": "claw=wrong", "origin": "http://localhost"},
]


async def test_no_route_reads_a_body_before_it_knows_the_sender(web: Web) -> None:
    app = build_app(changed(web.backend, {"webhooks": lambda: {"default": Pushed()}}))
    asked = 0
    for method, path in routes(web):
        if is_public(method, path) and path != "/webhook/{name}":
            continue
        for credential in CREDENTIALS:
            for length in ({"content-length": "10"}, {"transfer-encoding": "chunked"}):
                status = await status_of(app, method, filled(path), {**credential, **length})
                assert status in {401, 403, 429}, (method, path, credential)
                asked += 1
    assert asked > 200


async def test_a_token_without_the_scope_is_refused_before_the_body(web: Web) -> None:
    app = build_app(web.backend)
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "memory only", ["memory"])
    for path in ("/v1/chat/completions", "/api/messages", "/api/files", "/trigger", "/trigger/ci"):
        assert await status_of(app, "POST", path, {"authorization": f"Bearer {plain}"}) == 403, path


@pytest.mark.parametrize("credential", [*CREDENTIALS, {"authorization": BEARER["Authorization"]}])
async def test_no_body_is_read_where_there_is_no_route(web: Web, credential: dict[str, str]) -> None:
    app = build_app(web.backend)
    for path in ("/nowhere", "/v1/nowhere", "/api/openapi.json", "/static/app.css", "/api/status/"):
        for method in ("POST", "PUT", "DELETE", "PROPFIND"):
            assert await status_of(app, method, path, {**credential, "content-length": "9"}) in {307, 403, 404, 405}
    for method, path in {("PUT", "/api/messages"), ("POST", "/health"), ("DELETE", "/login"), ("GET", "/chat")}:
        assert await status_of(app, method, path, credential) in {403, 405}, (method, path)


async def test_too_large_is_refused_before_the_body(web: Web) -> None:
    app = build_app(web.backend)
    small = {"/api/channels/telegram/login": 64 * 1024, "/api/heartbeat": 64 * 1024, "/trigger/ci": 256 * 1024}
    for path, most in small.items():
        headers = {"authorization": BEARER["Authorization"], "content-length": str(most + 1)}
        assert await status_of(app, "POST", path, headers) == 413, path
    public = {"origin": "http://localhost", "content-length": str(PUBLIC_BODY + 1)}
    assert await status_of(app, "POST", "/login", public) == 413


@pytest.mark.parametrize("declared", [(), (signed_in, needs(Right.CHAT))])
def test_a_route_that_does_not_say_who_may_call_it_stops_the_start(
    declared: tuple[Callable[..., Awaitable[object]]],
) -> None:
    router = APIRouter()

    @router.get("/open", dependencies=[Depends(each) for each in declared])
    async def opened() -> None: ...

    with pytest.raises(TypeError, match="/open must depend on"):
        entries(router)


async def test_a_route_that_the_guard_did_not_check_is_closed(web: Web) -> None:
    app = build_app(web.backend)

    @app.get("/added/later", dependencies=[Depends(needs(Right.READ))])
    async def later() -> None: ...

    with pytest.raises(KeyError):
        await status_of(app, "GET", "/added/later", {"authorization": BEARER["Authorization"]})


# --- over sockets ---


@asynccontextmanager
async def connected(web: Web, host: str = "127.0.0.1") -> AsyncIterator[Link]:
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port, local_addr=(host, 0))
    try:
        yield reader, writer
    finally:
        writer.close()


def head(method: str, path: str, *lines: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{''.join(lines)}\r\n".encode()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the gateway ends the connection."""
    async with asyncio.timeout(20):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.fixture
def few_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that allows an eighth of the connections has as much to choose from, sooner."""
    for name in ("ALL", "WAITING"):
        monkeypatch.setattr(limits, name, getattr(limits, name) // 8)


async def is_served(web: Web) -> bool:
    """Whether new connections of the same address get answers, with and without a credential."""
    reached = [await web.client.get(path, headers=BEARER) for path in ("/health", "/api/status", "/v1/models")]
    return [answer.status_code for answer in reached] == [200, 200, 200]


@pytest.mark.usefixtures("few_allowed")
@pytest.mark.parametrize("sent", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
async def test_connections_that_never_finish_their_headers_lock_nobody_out(web: Web, sent: bytes) -> None:
    async with AsyncExitStack() as stack:
        held = [await stack.enter_async_context(connected(web)) for _ in range(limits.ALL + 11)]
        for _, writer in held:
            writer.write(sent)
        assert await is_served(web)
        assert await rest(held[0][0]) == b""


@pytest.mark.usefixtures("few_allowed")
async def test_those_of_other_addresses_lock_nobody_out_either(web: Web) -> None:
    async with AsyncExitStack() as stack:
        for number in range(limits.ALL + 11):
            _, writer = await stack.enter_async_context(connected(web, f"127.0.{number % 7}.2"))
            writer.write(b"GET / HTTP/1.1\r\n")
        assert await is_served(web)


@pytest.mark.usefixtures("few_allowed")
async def test_a_client_closes_its_own_connections_not_those_of_others(web: Web) -> None:
    async with connected(web, "127.0.0.2") as (reader, writer), AsyncExitStack() as stack:
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(limits.ALL + 11):
            await stack.enter_async_context(connected(web, "127.0.0.3"))
        writer.write(b"Connection: close\r\n\r\n")
        assert (await rest(reader)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("first", [b"", b"G", head("GET", "/health") + b"GET /hea"])
async def test_headers_have_to_come_in_time(web: Web, monkeypatch: pytest.MonkeyPatch, first: bytes) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 1.5)
    async with connected(web) as (reader, writer):
        writer.write(first)
        ended = asyncio.create_task(rest(reader))
        for _ in range(1000):
            if ended.done():
                break
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert (await ended).count(b"HTTP/1.1 200") == first.count(b"/health")


async def test_half_a_body_of_a_stranger_is_neither_read_nor_kept(web: Web) -> None:
    async with AsyncExitStack() as stack:
        held = [await stack.enter_async_context(connected(web)) for _ in range(150)]
        for _, writer in held:
            writer.write(head("POST", "/v1/chat/completions", WRONG, "Content-Length: 4000000\r\n") + b"[" * 1_000_000)
        assert await is_served(web)
        for reader, _ in held:
            assert (await reader.readline()).startswith((b"HTTP/1.1 401", b"HTTP/1.1 429"))


async def test_a_public_body_has_one_deadline_for_all_of_it(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_guard, "BODY_SECONDS", 0.3)
    async with connected(web) as (reader, writer):
        line = f"Origin: http://localhost\r\nContent-Type: application/json\r\nContent-Length: {PUBLIC_BODY}\r\n"
        writer.write(head("POST", "/login", line))
        answered = asyncio.create_task(reader.readline())
        for _ in range(1000):
            if answered.done():
                break
            writer.write(b" ")
            await asyncio.sleep(0.02)
        assert b" 408 " in await answered


async def test_a_body_may_take_long_as_long_as_it_comes(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_guard, "BODY_SECONDS", 5.0)
    body = b'{"text": "hello", "client_id": "slow"}'
    async with connected(web) as (reader, writer):
        token = f"Authorization: {BEARER['Authorization']}\r\n"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        writer.write(head("POST", "/api/messages", token, kind))
        for at in range(len(body)):
            writer.write(body[at : at + 1])
            await asyncio.sleep(0.01)
        assert (await rest(reader)).startswith(b"HTTP/1.1 202")


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked_only_if_it_may_send_it(web: Web) -> None:
    expect = "Expect: 100-continue\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"
    async with connected(web) as (reader, writer):
        writer.write(head("POST", "/trigger/ci", WRONG, expect))
        assert b" 401 " in await reader.readline()
    async with connected(web) as (reader, writer):
        writer.write(head("POST", "/trigger/ci", f"Authorization: {BEARER['Authorization']}\r\n", expect))
        assert b" 100 " in await reader.readline()
        writer.write(b"hello")
        await reader.readline()
        assert b" 202 " in await reader.readline()


async def test_requests_on_one_connection_are_answered_one_after_another(web: Web) -> None:
    token = f"Authorization: {BEARER['Authorization']}\r\n"
    body = b'{"text": "%s", "client_id": "%d"}'
    async with connected(web) as (reader, writer):
        for number in range(3):
            sent = body % (b"x" * 40_000, number)
            kind = f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n"
            writer.write(head("POST", "/api/messages", token, kind) + sent)
        writer.write(head("GET", "/health", "Connection: close\r\n"))
        answered = await rest(reader)
    assert (answered.count(b"HTTP/1.1 202"), answered.count(b"HTTP/1.1 200")) == (3, 1)


async def test_one_credential_leaves_room_for_the_others(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ADMITTED", 2)
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "greedy", ["chat", "read"])
    headers = {"Authorization": f"Bearer {plain}"}
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(web.client.stream("GET", "/api/events", headers=headers))
        refused = await web.client.get("/api/status", headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_connections")
        assert await is_served(web)
    for _ in range(200):
        if (await web.client.get("/api/status", headers=headers)).status_code == 200:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("what has ended still counts")


@pytest.mark.usefixtures("few_allowed")
async def test_who_leaves_at_once_is_forgotten(web: Web) -> None:
    async with connected(web, "127.0.0.2") as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(limits.ALL + 11):
            async with connected(web, "127.0.0.3") as (_, leaving):
                leaving.write(head("GET", "/health", "Connection: close\r\n"))
                leaving.transport.abort()
        writer.write(b"Connection: close\r\n\r\n")
        assert (await rest(reader)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "2001:db8::1", "203.0.113.9"])
def test_an_address_of_any_kind_is_counted(peer: str) -> None:
    class Fake:
        was_cut = False

        def cut(self) -> None:
            self.was_cut = True
            everyone.closed(self)

    everyone = limits.Connections(proxies=())
    opened = [Fake() for _ in range(limits.ALL + 1)]
    for each in opened:
        everyone.idle(each, peer)
    kept = limits.ALL if "127.0.0.1" in peer or peer == "::1" else limits.WAITING
    assert [each.was_cut for each in opened] == [True] * (len(opened) - kept) + [False] * kept


# --- finding 19 ---


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: +5\r\n",
    ],
)
async def test_a_request_of_unclear_length_is_refused_and_ends_the_connection(web: Web, lines: str) -> None:
    async with connected(web) as (reader, writer):
        token = f"Authorization: {BEARER['Authorization']}\r\n"
        writer.write(head("POST", "/trigger/ci", token, lines) + b"0\r\n\r\n" + head("GET", "/health"))
        answered = await rest(reader)
    assert answered.startswith(b"HTTP/1.1 400")
    assert answered.count(b"HTTP/1.1 ") == 1


async def test_browsers_are_told_to_stay_with_https(running: Running) -> None:
    started = await running.start(public_url="https://claw.example.org")
    for path in ("/login", "/nowhere", "/api/status"):
        public = await started.web.client.get(path, headers={"Host": "claw.example.org"})
        assert public.headers["strict-transport-security"] == "max-age=31536000"
        local = await started.web.client.get(path)
        assert "strict-transport-security" not in local.headers
    await started.stop()


# --- finding 17 ---


@dataclass
class Pushed:
    """A channel with a secret that counts what it takes."""

    taken: int = 0

    def refuses(self, headers: Mapping[str, str]) -> WebhookReply | None:
        return None if headers.get("x-secret") == "s" else WebhookReply(401, "wrong secret")

    async def deliver(self, body: bytes) -> WebhookReply:
        self.taken += len(body)
        return WebhookReply(200)


async def test_wrong_webhook_secrets_are_slowed_down_and_never_shut_the_platform_out(running: Running) -> None:
    channel = Pushed()
    started = await running.start(webhooks=lambda: {"telegram": channel})
    client = started.web.client
    wrong = [await client.post("/webhook/telegram", content=b"{}", headers={"X-Secret": "n"}) for _ in range(25)]
    right = await client.post("/webhook/telegram", content=b"{}", headers={"X-Secret": "s"})
    await started.stop()
    assert [wrong[0].status_code, wrong[-1].status_code] == [401, 429]
    assert (right.status_code, channel.taken) == (200, 2)
