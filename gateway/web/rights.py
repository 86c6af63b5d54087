"""Ends open streams and long waits when their credential loses its right."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from gateway.domain.errors import TryAgainLater
from gateway.domain.time import Clock
from gateway.flow.signals import Wakeup
from gateway.store.connection.pool import Database
from gateway.store.people import tokens
from gateway.store.people.tokens import LiveToken

LOOK_SECONDS = 0.8
"""Between two checks while something is open: no notification comes for an expiry, nor through a pooler."""
_NOTHING_OPEN = 3600.0
_SETTLE = 0.05

log = structlog.get_logger(__name__)


class Rights:
    """The streams and waits that are open, each with the credential that opened it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._open: dict[asyncio.Event, LiveToken | None] = {}
        self._changed = Wakeup()
        self._stopped = False

    @contextmanager
    def hold(self, token: LiveToken | None) -> Iterator[asyncio.Event]:
        """An event, set when the token loses a right or the gateway stops; the local token (None) loses none."""
        ended = asyncio.Event()
        if self._stopped:
            ended.set()
        self._open[ended] = token
        self._changed.set()  # it may have been revoked since the request was authenticated
        try:
            yield ended
        finally:
            del self._open[ended]

    def look_again(self) -> None:
        """Check now: somebody's rights have changed."""
        self._changed.set()

    async def serve(self, stopping: asyncio.Event) -> None:
        """End each that has lost its right until `stopping` is set, then all."""
        following = asyncio.create_task(self._follow(), name="follow rights")
        try:
            await stopping.wait()
        finally:
            self._stopped = True
            following.cancel()
            for ended in self._open:
                ended.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait(LOOK_SECONDS if self._open else _NOTHING_OPEN)
            self._changed.clear()
            try:
                await self._look()
            except TryAgainLater as exc:
                log.info("rights.database", error=str(exc))
            except Exception:  # the next look may work
                log.exception("rights.broken")
            await asyncio.sleep(_SETTLE)

    async def _look(self) -> None:
        held = {ended: token for ended, token in self._open.items() if token is not None}
        live_tokens = await tokens.live(self._database, {token.id for token in held.values()}) if held else {}
        now = self._clock.now()
        for ended, token in held.items():
            if not ((live := live_tokens.get(token.id)) and live.entitles(token, now)):
                ended.set()
