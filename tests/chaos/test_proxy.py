"""The faults are real ones: what a client sees behind the proxy."""

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.chaos.proxy import Proxy, Trap, Weather, before_postgres


class Echo:
    """Answers every byte with itself and keeps what it heard."""

    def __init__(self) -> None:
        self.heard = b""
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while sent := await reader.read(1024):
                self.heard += sent
                writer.write(sent)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    async with await asyncio.start_server(echo.answer, "127.0.0.1", 0) as server:
        echo.port = server.sockets[0].getsockname()[1]
        yield echo


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[Proxy]:
    async with Proxy(("127.0.0.1", echo.port)) as proxy:
        yield proxy


class Line:
    """A client's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, text: bytes) -> bytes:
        self._writer.write(text)
        return await asyncio.wait_for(self._reader.readexactly(len(text)), 5)

    async def hear(self) -> bytes:
        return await asyncio.wait_for(self._reader.read(1024), 5)


@pytest.fixture
async def line(proxy: Proxy) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    yield Line(reader, writer)
    writer.close()


async def test_in_calm_weather_nothing_changes(line: Line) -> None:
    assert await line.ask(b"hello") == b"hello"


async def test_bytes_can_be_late_sliced_slowed_and_flipped(proxy: Proxy, echo: Echo, line: Line) -> None:
    began = time.monotonic()
    proxy.there = Weather(delay=0.2)
    assert await line.ask(b"late") == b"late"
    proxy.there = Weather(piece=1, rate=20)
    assert await line.ask(b"slow") == b"slow"
    assert time.monotonic() - began > 0.3
    proxy.there = Weather(flip_every=2)
    assert len(await line.ask(b"turn")) == 4
    assert echo.heard.endswith(bytes([ord("t") ^ 1, ord("u"), ord("r") ^ 1, ord("n")]))
    proxy.calm()
    assert await line.ask(b"fine") == b"fine"


async def test_a_drop_ends_a_connection_and_a_reset_breaks_it(proxy: Proxy, line: Line) -> None:
    await line.ask(b"hello")
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    other = Line(reader, writer)
    await other.ask(b"hello")
    proxy.drop()
    assert await line.hear() == b""
    writer.close()

    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    third = Line(reader, writer)
    await third.ask(b"hello")
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        await third.hear()
    writer.close()


async def test_what_is_frozen_stays_connected_and_arrives_later(proxy: Proxy, line: Line) -> None:
    await line.ask(b"hello")
    proxy.freeze()
    asked = asyncio.create_task(line.ask(b"held"))
    await asyncio.sleep(0.1)
    assert not asked.done()
    assert proxy.open == 1
    proxy.thaw()
    assert await asked == b"held"


async def test_it_refuses_and_listens_again_on_the_same_port(proxy: Proxy) -> None:
    port = proxy.port
    await proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    await proxy.listen()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await Line(reader, writer).ask(b"again") == b"again"
    writer.close()


@pytest.mark.parametrize(("when", "stored"), [("before", 0), ("after", 1)])
async def test_a_commit_can_be_lost_or_only_its_answer(dsn: str, when: str, stored: int) -> None:
    async with before_postgres(dsn) as (proxy, address):
        connection = await asyncpg.connect(address)
        proxy.trap = Trap(b"COMMIT;", "before" if when == "before" else "after", times=1)
        with pytest.raises((OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
            async with connection.transaction():
                await connection.execute("insert into supaclaw.meta (key, value) values ('chaos', 'true')")
        assert proxy.trap.sprung == 1
        connection.terminate()
    direct = await asyncpg.connect(dsn)
    assert await direct.fetchval("select count(*) from supaclaw.meta where key = 'chaos'") == stored
    await direct.close()
