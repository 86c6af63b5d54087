"""Servers on real sockets that answer in every bad way, and search APIs that answer as theirs do."""

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gateway.net.addresses import Rules

Write = Callable[[bytes], Awaitable[None]]
Respond = Callable[["Asked", Write], Awaitable[None]]


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    sent: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def rules(self) -> Rules:
        return Rules.of([f"127.0.0.1:{self.port}"])


@asynccontextmanager
async def serving(respond: Respond, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    known = Server(scheme="https" if tls else "http")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(piece: bytes) -> None:
            writer.write(piece)
            await writer.drain()
            known.sent += len(piece)

        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
            line, *rest = head.rstrip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            known.asked.append(Asked(*line.split()[:2], headers, body))
            await respond(known.asked[-1], write)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has gone
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    async with server:
        known.port = server.sockets[0].getsockname()[1]
        yield known


def head(type: str = "text/html", status: str = "200 OK", *more: str, length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {type}", "Connection: close", *more]
    return "\r\n".join([*lines, *([f"Content-Length: {length}"] if length is not None else []), "", ""]).encode(
        "latin1"
    )


def page(body: bytes, type: str = "text/html; charset=utf-8", status: str = "200 OK", *more: str) -> Respond:
    async def respond(_asked: Asked, write: Write) -> None:
        await write(head(type, status, *more, length=len(body)) + body)

    return respond


def site(pages: dict[str, Respond]) -> Respond:
    async def respond(asked: Asked, write: Write) -> None:
        await pages.get(asked.path, page(b"not here", "text/plain", "404 Not Found"))(asked, write)

    return respond


def redirect(location: str) -> Respond:
    return page(b"", "text/plain", "302 Found", f"Location: {location}")


def endless(piece: bytes = b"x" * 65_536, total: int = 500 * 2**20) -> Respond:
    """A page of 500 MB that does not say so."""

    async def respond(_asked: Asked, write: Write) -> None:
        await write(head())
        for _ in range(total // len(piece)):
            await write(piece)

    return respond


async def announced(_asked: Asked, write: Write) -> None:
    """A page of 500 MB that says so."""
    await write(head(length=500 * 2**20))
    await endless()(_asked, write)


async def dripping(_asked: Asked, write: Write) -> None:
    await write(head())
    while True:
        await write(b".")
        await asyncio.sleep(0.05)


async def silent(_asked: Asked, _write: Write) -> None:
    await asyncio.sleep(3600)


async def single_bytes(_asked: Asked, write: Write) -> None:
    await write(head("text/html", "200 OK", "Transfer-Encoding: chunked"))
    while True:
        await write(b"1\r\nx\r\n" * 10_000)


async def long_header(_asked: Asked, write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 2**20 + b"\r\n\r\nhello")


async def many_headers(_asked: Asked, write: Write) -> None:
    await write(head("text/html", "200 OK", *(f"X-{number}: 1" for number in range(1_000))) + b"hello")


async def hints(_asked: Asked, write: Write) -> None:
    while True:
        await write(b"HTTP/1.1 103 Early Hints\r\n\r\n")


async def nonsense(_asked: Asked, write: Write) -> None:
    await write(b"\x00\x01SSH-2.0-OpenSSH_9.6\r\n\r\n")


def bomb(encoding: str = "gzip", layers: int = 1) -> Respond:
    body = b"\0" * (200 * 2**20)
    for _ in range(layers):
        body = gzip.compress(body, 1)
    return page(body, "text/html", "200 OK", f"Content-Encoding: {encoding}")


BRAVE = {"web": {"results": [{"title": "One <b>", "url": "https://one.example/", "description": "About\n one"}]}}
TAVILY = {"results": [{"title": "Two", "url": "https://two.example/", "content": "About two", "score": 0.9}]}
EXA = {"results": [{"title": "Three", "url": "https://three.example/", "text": "About three"}]}
SEARXNG = {"results": [{"title": "Four", "url": "https://four.example/", "content": "About four"}]}


def search_apis(broken: tuple[str, ...] = (), answers: dict[str, object] | None = None) -> Respond:
    """All four at one address; a wrong key is refused as each does it."""
    known = {"/res/v1/web/search": BRAVE, "/tavily/search": TAVILY, "/exa/search": EXA, "/searxng/search": SEARXNG}
    keys = {"x-subscription-token": "key", "authorization": "Bearer key", "x-api-key": "key"}

    async def respond(asked: Asked, write: Write) -> None:
        path = asked.path.partition("?")[0]
        authorised = path.startswith("/searxng") or any(asked.headers.get(name) == key for name, key in keys.items())
        status = "401 Unauthorized" if not authorised else "503 Busy" if path in broken else "200 OK"
        body = json.dumps({**known, **(answers or {})}[path] if status == "200 OK" else {"error": status}).encode()
        await page(body, "application/json", status)(asked, write)

    return respond
