"""The connection pool of an endpoint against a real HTTP server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.protocol.http import HttpClient

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _directly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    """Tells what it was asked; `/slow` sends one piece and no more, `/elsewhere` points to the first."""

    end = asyncio.Event()

    async def tell(request: web.Request) -> web.Response:
        body = await request.read()
        told = {"path": str(request.url), "size": len(body), **dict(request.headers)}
        return web.json_response(told, headers={"X-Long": "x" * 20_000})

    async def stall(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one piece")
        await request.content.readany()
        await end.wait()
        return response

    async def move(request: web.Request) -> web.Response:
        raise web.HTTPMovedPermanently("/v2/chat")

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/slow", stall)
    app.router.add_post("/v1/moved", move)
    app.router.add_route("*", "/{tail:.*}", tell)
    async with TestServer(app) as running:
        yield running
        end.set()


async def failure(address: str, path: str, within: float | None = None) -> ModelError:
    client = HttpClient(address, "k")
    with pytest.raises(ModelError) as caught:
        async with client.post(path, {}, timeout=within) as response:
            await response.read()
    await client.close()
    return caught.value


async def told(client: HttpClient, text: str = "") -> dict[str, str]:
    async with client.post("/chat", {"text": text}) as response:
        answer: dict[str, str] = await response.json()
    await client.close()
    return answer


async def test_a_request_says_who_asks_and_with_which_key(server: TestServer) -> None:
    answer = await told(HttpClient(f"{server.make_url('/v1')}/", "sk-1"))
    assert answer["path"].endswith("/v1/chat")
    assert (answer["Authorization"], answer["Content-Type"]) == ("Bearer sk-1", "application/json")
    assert answer["User-Agent"].startswith("SupaClaw/")


async def test_a_request_after_the_end_opens_connections_again(server: TestServer) -> None:
    client = HttpClient(str(server.make_url("/v1")), None)
    assert (await told(client))["path"] == (await told(client))["path"]


async def test_a_line_break_that_was_copied_with_the_key_does_no_harm(server: TestServer) -> None:
    assert (await told(HttpClient(str(server.make_url("/v1")), "sk-\n1\n")))["Authorization"] == "Bearer sk-1"


async def test_a_body_of_several_megabytes_arrives_whole(server: TestServer) -> None:
    answer = await told(HttpClient(str(server.make_url("/v1")), None), "x" * 3_000_000)
    assert (answer["size"], answer["Content-Length"]) == (3_000_012, "3000012")


async def test_the_proxy_of_the_environment_is_used(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", str(server.make_url("")))
    assert (await told(HttpClient("http://models.example/v1", "k")))["Host"] == "models.example"


async def test_no_proxy_is_used_where_none_is_wanted(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    assert (await told(HttpClient(str(server.make_url("/v1")), "k")))["path"].endswith("/v1/chat")


async def test_what_takes_too_long_in_all_is_a_network_error(server: TestServer) -> None:
    error = await failure(str(server.make_url("/v1")), "/slow", within=0.2)
    assert error.kind is ErrorKind.NETWORK
    assert str(error) == f"127.0.0.1:{server.port}: it took too long"


async def test_a_redirect_that_loses_the_request_is_told(server: TestServer) -> None:
    error = await failure(str(server.make_url("/v1")), "/moved")
    assert (error.kind, str(server.make_url("/v2/chat")) in str(error)) == (ErrorKind.BAD_REQUEST, True)


@pytest.mark.parametrize("address", ["localhost:1234/v1", "http://[::1", "http://h:99999"])
async def test_an_address_that_is_none_is_told(address: str) -> None:
    assert f"{address}/chat" in str(await failure(address, "/chat"))
