"""Reloads config.json at run time: valid edits go to the subscribers, invalid ones are reported once."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import structlog

from gateway.config.load import read
from gateway.config.model import Config
from gateway.domain.errors import ConfigError, required

log = structlog.get_logger("config")

MAX_PROBLEM_CHARS = 3_000
"""Characters of problems in one report."""

Value = TypeVar("Value")


@dataclass(slots=True)
class ConfigWatch:
    """Keeps the last valid configuration in `current`.

    `parse` turns the file's text into a `Config` or raises `ConfigError`, whose text goes to `_on_rejected`. The file
    is also polled every `_look_every` seconds: a mounted file can change without an event.
    """

    _path: Path
    current: Config
    parse: Callable[[str], Config]
    _on_rejected: Callable[[str], Awaitable[None]]
    _look_every: float = 5.0
    _keys: Callable[[], Mapping[str, str]] = field(kw_only=True)
    """The keys saved for `$env:` references; a change of them counts as a change of the file."""
    _subscribers: list[Callable[[Config], Awaitable[None]]] = field(default_factory=list)
    _seen: tuple[str | None, str, frozenset[tuple[str, str]]] = (None, "", frozenset())
    """The text of the file, the error of reading it, and the saved keys."""
    _done: tuple[str | None, bool] = (None, True)
    """The text that was handled last, and whether every subscriber applied it."""
    _handled: asyncio.Condition = field(default_factory=asyncio.Condition)

    def subscribe(self, callback: Callable[[Config], Awaitable[None]]) -> None:
        """Call `callback` with each later configuration; its errors are logged and do not affect the others."""
        self._subscribers.append(callback)

    async def handled(self, text: str) -> bool:
        """Wait until a file with this text has been handled; returns whether every subscriber applied it."""
        async with self._handled:
            await self._handled.wait_for(lambda: self._done[0] == text)
        return self._done[1]

    async def run(self) -> None:
        """Watch the file until cancelled; first checks for edits since `current` was read."""
        await self.look()
        async with aclosing(_changes(self._path.parent, self._look_every)) as changes:
            async for _ in changes:
                await self.look()

    async def look(self) -> None:
        """Read the file once; do nothing if it has not changed."""
        try:
            config = await asyncio.to_thread(self._changed)
        except OSError as error:
            log.warning("config.not_looked_at", error=str(error))
        except ConfigError as error:
            problem = str(error)[:MAX_PROBLEM_CHARS]
            log.warning("config.rejected", problem=problem)
            await _call(self._on_rejected, f"{problem}\nThe last good version is still in use.")
            await self._finish(well=False)
        else:
            if config is not None:
                await self._finish(well=await self._apply(config))

    async def _finish(self, *, well: bool) -> None:
        async with self._handled:
            self._done = self._seen[0], well
            self._handled.notify_all()

    def _changed(self) -> Config | None:
        """The configuration in the file; None if the file has not changed."""
        text, problem, keys = None, "", frozenset[tuple[str, str]]()
        try:
            text = read(self._path)
            keys = frozenset(self._keys().items() if text is not None else ())
        except ConfigError as error:
            problem = str(error)
        if self._seen == (text, problem, keys):
            return None
        self._seen = (text, problem, keys)
        return self.parse(required(text, ConfigError(problem or f"{self._path} is gone")))

    async def _apply(self, config: Config) -> bool:
        web = self.current.web.model_copy(update={"allowed_hosts": config.web.allowed_hosts})
        if (config.web, config.database) != (web, self.current.database):
            log.warning("config.needs_restart", keys="web, database", hint="restart to apply these two")
        config = config.model_copy(update={"web": web, "database": self.current.database})
        if config == self.current:
            return True
        self.current = config
        applied = [await _call(subscriber, config) for subscriber in self._subscribers]
        log.info("config.changed")
        if not all(applied):
            await _call(self._on_rejected, "It is in use in part only; the log says why. Restart the gateway.")
        return all(applied)


async def _call(callback: Callable[[Value], Awaitable[None]], value: Value) -> bool:
    try:
        await callback(value)
    except Exception:
        log.exception("config.subscriber_failed", subscriber=getattr(callback, "__qualname__", repr(callback)))
        return False
    return True


async def _changes(folder: Path, look_every: float) -> AsyncGenerator[None, None]:
    """Yield when something may have changed in `folder`; without file events, at every interval."""
    from watchfiles import awatch

    wait = int(look_every * 1000)
    events = awatch(
        folder, watch_filter=None, recursive=False, debounce=400, step=400, rust_timeout=wait, yield_on_timeout=True
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
