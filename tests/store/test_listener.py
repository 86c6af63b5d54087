import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from gateway.store.connection import listener as listener_module
from gateway.store.connection.listener import Listener
from gateway.store.connection.pool import Database
from tests.conftest import Server


class Heard:
    """What a listener told, as events to wait for."""

    def __init__(self) -> None:
        self.notes: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.connections: asyncio.Queue[None] = asyncio.Queue()

    def heard(self, channel: str, payload: str) -> None:
        self.notes.put_nowait((channel, payload))

    def connected(self) -> None:
        self.connections.put_nowait(None)


class Line:
    """A proxy to the server's socket; connections that it has can fall silent without being closed."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._silenced: list[asyncio.StreamReader] = []
        self._readers: list[asyncio.StreamReader] = []

    def fall_silent(self) -> None:
        self._silenced = list(self._readers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._target)
        self._readers += [reader, far_reader]
        await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if reader not in self._silenced:
                    writer.write(data)
                    await writer.drain()
        writer.close()


@asynccontextmanager
async def listening(dsn: str, *channels: str, patience: float = 20.0) -> AsyncIterator[Heard]:
    heard = Heard()
    task = asyncio.create_task(Listener(dsn, channels, heard.heard, heard.connected, patience=patience).run())
    try:
        async with asyncio.timeout(30):
            await heard.connections.get()
            yield heard
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def notify(database: Database, channel: str, payload: str) -> None:
    async with database.connection() as connection:
        await connection.execute("select pg_notify($1, $2)", channel, payload)


def socket_of(dsn: str) -> str:
    return f"{parse_qs(urlsplit(dsn).query)['host'][0]}/.s.PGSQL.5432"


def by_way_of(folder: Path, dsn: str) -> str:
    return f"{dsn.partition('?')[0]}?host={folder}"


async def open_once_missed(door: Path, target: str, logs: list[EventDict]) -> None:
    while True:
        if logs:
            os.symlink(target, door)
            return
        await asyncio.sleep(0.005)


async def cut(server: Server) -> None:
    await server.maintain(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'supaclaw listener'"
    )


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "_FIRST_DELAY", 0.01)


async def test_notifications_of_its_channels_are_heard(database: Database, dsn: str) -> None:
    async with listening(dsn, "one", "two") as heard:
        await notify(database, "one", "a")
        await notify(database, "other", "b")
        await notify(database, "two", "")
        assert [await heard.notes.get(), await heard.notes.get()] == [("one", "a"), ("two", "")]


async def test_after_a_cut_it_listens_again_and_says_so(database: Database, dsn: str, server: Server) -> None:
    with capture_logs() as logs:
        async with listening(dsn, "one") as heard:
            for payload in ("first", "second"):
                await cut(server)
                await heard.connections.get()
                await notify(database, "one", payload)
                assert await heard.notes.get() == ("one", payload)
    assert [entry["event"] for entry in logs] == ["listener.lost"] * 2


async def test_a_connection_that_died_silently_is_noticed(database: Database, dsn: str, tmp_path: Path) -> None:
    line = Line(socket_of(dsn))
    door = await asyncio.start_unix_server(line.serve, tmp_path / ".s.PGSQL.5432")
    async with door, listening(by_way_of(tmp_path, dsn), "one", patience=0.2) as heard:
        line.fall_silent()
        await heard.connections.get()
        await notify(database, "one", "again")
        assert await heard.notes.get() == ("one", "again")


async def test_it_waits_for_a_server_that_is_not_there_yet(dsn: str, tmp_path: Path) -> None:
    with capture_logs() as logs:
        door = asyncio.create_task(open_once_missed(tmp_path / ".s.PGSQL.5432", socket_of(dsn), logs))
        async with listening(by_way_of(tmp_path, dsn), "one"):
            await door
    assert {entry["event"] for entry in logs} == {"listener.lost"}


async def test_behind_a_transaction_pooler_it_leaves_the_field_to_polling(dsn: str) -> None:
    heard = Heard()
    await Listener(f"{dsn}&pool_mode=transaction", ["one"], heard.heard, heard.connected).run()
    assert heard.connections.empty()
