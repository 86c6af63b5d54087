"""config.json while the gateway runs: a good edit is handed on, a bad one is refused and told once."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

import structlog

from gateway.config.load import read
from gateway.config.model import Config
from gateway.domain.errors import ConfigError

log = structlog.get_logger("config")

Told = TypeVar("Told")


class ConfigWatch:
    """Keeps `current` as the last good configuration.

    `parse` turns the file's text into a `Config` or raises `ConfigError`, whose text goes to `on_rejected`. Every
    `look_every` seconds the file is read although nothing was reported: a mounted file can change unseen.
    """

    def __init__(
        self,
        path: Path,
        current: Config,
        parse: Callable[[str], Config],
        on_rejected: Callable[[str], Awaitable[None]],
        look_every: float = 5.0,
    ) -> None:
        self.current = current
        self._path = path
        self._parse = parse
        self._on_rejected = on_rejected
        self._look_every = look_every
        self._subscribers: list[Callable[[Config], Awaitable[None]]] = []
        self._seen: str | None = None

    def subscribe(self, callback: Callable[[Config], Awaitable[None]]) -> None:
        """Every later configuration goes to `callback`; what it raises is logged and stops nobody else."""
        self._subscribers.append(callback)

    async def run(self) -> None:
        """Follow the file until cancelled; an edit made since `current` was read is found at once."""
        await self.look()
        async with aclosing(_changes(self._path.parent, self._look_every)) as changes:
            async for _ in changes:
                await self.look()

    async def look(self) -> None:
        """Read the file once; nothing happens when its text is what it was."""
        try:
            text = read(self._path)
            if text == self._seen:
                return
            self._seen = text
            config = self._parsed(text)
        except ConfigError as error:
            await self._reject(str(error))
        else:
            await self._apply(config)

    def _parsed(self, text: str | None) -> Config:
        if text is None:
            raise ConfigError(f"{self._path} is gone")
        return self._parse(text)

    async def _reject(self, problem: str) -> None:
        text = f"{problem}\nThe last good configuration stays in force."
        log.warning("config.rejected", problem=problem)
        await _tell(self._on_rejected, text)

    async def _apply(self, config: Config) -> None:
        if (config.web, config.database) != (self.current.web, self.current.database):
            log.warning("config.needs_restart", keys="web, database", hint="restart to apply these two")
        config = config.model_copy(update={"web": self.current.web, "database": self.current.database})
        if config == self.current:
            return
        self.current = config
        for subscriber in self._subscribers:
            await _tell(subscriber, config)
        log.info("config.changed")


async def _tell(callback: Callable[[Told], Awaitable[None]], what: Told) -> None:
    try:
        await callback(what)
    except Exception:
        log.exception("config.subscriber_failed", subscriber=getattr(callback, "__qualname__", repr(callback)))


async def _changes(folder: Path, look_every: float) -> AsyncGenerator[None, None]:
    """Something may have changed in `folder`; where the system cannot say so, at every interval."""
    from watchfiles import awatch

    milliseconds = int(look_every * 1000)
    events = awatch(
        folder,
        watch_filter=None,
        recursive=False,
        debounce=400,
        step=100,
        rust_timeout=milliseconds,
        yield_on_timeout=True,
    )
    try:
        async with aclosing(events):
            async for _ in events:
                yield
    except (OSError, RuntimeError) as error:
        log.warning("config.polled", reason=str(error), every_seconds=look_every)
    while True:
        await asyncio.sleep(look_every)
        yield
