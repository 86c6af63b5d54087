"""Hears what other processes notify; callers poll as well, for a notification can get lost with its connection."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NoReturn

import asyncpg
import structlog

from gateway.store.connection.dsn import Dsn, parse_dsn

log = structlog.get_logger()

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 10.0
_FOREIGN = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class Subscriptions:
    """Channels that are heard for a while, beside a listener's fixed ones."""

    def __init__(self) -> None:
        self.channels: set[str] = set()
        self.changed = asyncio.Event()

    def add(self, channel: str) -> None:
        """Hear it, from a moment later on."""
        self.channels.add(channel)
        self.changed.set()

    def discard(self, channel: str) -> None:
        """Hear it no more."""
        self.channels.discard(channel)
        self.changed.set()


@dataclass(slots=True)
class Listener:
    """LISTENs on a connection of its own: `heard(channel, payload)` for each notification.

    `connected` is called each time it listens anew: what was notified before that may have been missed. Both run on
    the event loop, must be quick and must not raise. `patience` is how long a dead connection may go unnoticed, and
    how long the server may take for an answer.
    """

    dsn: str
    channels: Sequence[str]
    heard: Callable[[str, str], None]
    connected: Callable[[], None]
    _: KW_ONLY
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    patience: float = 20.0

    async def run(self) -> None:
        """Listen until cancelled; returns at once behind a transaction pooler, where nothing can be heard."""
        target, delay = parse_dsn(self.dsn), _FIRST_DELAY
        while target.direct:
            try:
                connection = await self._connect(target)
                delay = _FIRST_DELAY
                await self._until_lost(connection)
            except _FOREIGN as error:
                log.warning("listener.lost", error=str(error) or type(error).__name__)
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, _LONGEST_DELAY)

    async def _connect(self, target: Dsn) -> asyncpg.Connection:
        named = {"application_name": "supaclaw listener"}
        within = self.patience
        return await asyncpg.connect(target.url, timeout=within, command_timeout=within, server_settings=named)

    async def _until_lost(self, connection: asyncpg.Connection) -> NoReturn:
        lost, heard = asyncio.Event(), set[str]()

        def on_lost(_connection: object) -> None:
            lost.set()
            self.subscriptions.changed.set()

        connection.add_termination_listener(on_lost)
        try:
            for channel in self.channels:
                await connection.add_listener(channel, self._on_notification)
            self.connected()
            while not lost.is_set():
                heard = await self._follow(connection, heard)
                await self._probe(connection)
            raise ConnectionError("the server closed the connection")
        finally:
            connection.terminate()

    async def _follow(self, connection: asyncpg.Connection, heard: set[str]) -> set[str]:
        """Listen to what is subscribed to now; answers what that is."""
        self.subscriptions.changed.clear()
        wanted = set(self.subscriptions.channels)
        for channel in wanted - heard:
            await connection.add_listener(channel, self._on_notification)
            self.heard(channel, "")  # of what was told before
        for channel in heard - wanted:
            await connection.remove_listener(channel, self._on_notification)
        return wanted

    async def _probe(self, connection: asyncpg.Connection) -> None:
        """Until it is lost or the subscriptions change; it can die without a word: ask it something now and then."""
        try:
            async with asyncio.timeout(self.patience):
                await self.subscriptions.changed.wait()
        except TimeoutError:
            await connection.execute("select 1")

    def _on_notification(self, _connection: object, _pid: int, channel: str, payload: object) -> None:
        self.heard(channel, str(payload))
