"""Clients without a credential that keep the web side busy, in a process of their own.

They stand for other machines, so they take only what the gateway leaves of the processor.

`python -m tests.chaos.intruders KIND PORT` goes on until it is killed, and prints how often it has tried.
"""

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Attack = Callable[[int], Awaitable[None]]
MB = 1024 * 1024
WRONG = "Authorization: Bearer claw_" + "x" * 43 + "\r\n"
BETWEEN = 1.0
"""Seconds until what was cut off is tried again."""

tries = itertools.count(1)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    print(next(tries), flush=True)
    try:
        yield reader, writer
    finally:
        writer.close()


def head(method: str, path: str, *lines: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{''.join(lines)}\r\n".encode()


async def half_headers(port: int) -> None:
    """Headers that never end, a byte a second."""
    async with connected(port) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-More: ")
        while not reader.at_eof():
            writer.write(b"x")
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(MB), 1)
    await asyncio.sleep(BETWEEN)


async def half_bodies(port: int) -> None:
    """Most of 4 MB, and then nothing more."""
    async with connected(port) as (reader, writer):
        writer.write(head("POST", "/v1/chat/completions", WRONG, f"Content-Length: {4 * MB}\r\n"))
        writer.write(b"[" * (4 * MB - 1000))
        with suppress(TimeoutError):
            await asyncio.wait_for(reader.read(), 30)
    await asyncio.sleep(BETWEEN)


async def large_json(port: int) -> None:
    """4 MB that take long to parse, one after another."""
    async with connected(port) as (reader, writer):
        body = b"[" + b"[]," * (4 * MB // 3 - 10) + b"[]]"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        writer.write(head("POST", "/api/messages", WRONG, kind) + body)
        await writer.drain()
        await reader.read()


async def small_chunks(port: int) -> None:
    """The same in chunks of one byte."""
    async with connected(port) as (reader, writer):
        writer.write(head("POST", "/api/messages", WRONG, "Transfer-Encoding: chunked\r\n"))
        writer.write(b"1\r\nx\r\n" * (MB // 6))
        await writer.drain()
        await reader.read()


async def guesses(port: int) -> None:
    """Wrong credentials of every kind, as fast as they are refused."""
    link = b'{"secret": "' + b"x" * 43 + b'"}'
    form = f"Origin: http://localhost\r\nContent-Type: application/json\r\nContent-Length: {len(link)}\r\n"
    secret = "X-Telegram-Bot-Api-Secret-Token: wrong\r\nContent-Length: 2\r\n"
    kinds = (
        head("GET", "/api/status", WRONG),
        head("GET", "/checks/events", "Cookie: claw=" + "x" * 43 + "\r\n"),
        head("POST", "/login", form) + link,
        head("POST", "/webhook/telegram", secret) + b"{}",
    )
    async with connected(port) as (reader, writer):
        for kind in itertools.cycle(kinds):
            writer.write(kind)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            print(next(tries), flush=True)


KINDS: dict[str, tuple[int, Attack]] = {
    "half headers": (600, half_headers),
    "half bodies": (150, half_bodies),
    "large JSON": (4, large_json),
    "small chunks": (4, small_chunks),
    "guesses": (32, guesses),
}


async def go_on(attack: Attack, port: int) -> None:
    while True:
        with suppress(OSError, EOFError, ValueError):
            await attack(port)
        await asyncio.sleep(0)


async def main(kind: str, port: int) -> None:
    os.nice(19)
    many, attack = KINDS[kind]
    await asyncio.gather(*(go_on(attack, port) for _ in range(many)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
