"""The real gateway, in a process of its own, and what one does with it: start it, talk to it, kill it, look inside."""

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from gateway.store.embedded.postgres import EmbeddedPostgres
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.zygote import Forked, fork

ROOT = Path(__file__).parents[2]
OWNER = 77
FRIEND = 78
STRANGER = 79
SECONDS = 60.0

Json = dict[str, Any]


def configured(telegram: FakeTelegram | None = None, models: FakeModels | None = None, **sections: Any) -> Json:
    """A config.json for the owner, behind these fakes; `sections` are laid over it."""
    config: Json = {"owner": {"name": "Ada"}}
    if telegram is not None:
        config["owner"]["telegram"] = str(OWNER)
        config["channels"] = {"telegram": {"token": telegram.token, "api_base": telegram.url, "allow": [str(OWNER)]}}
    if models is not None:
        provider = {"api_key": "sk-of-the-owner", "base_url": models.base_url}
        config["models"] = {"primary": "openai/mock-model", "providers": {"openai": provider}}
    return config | sections


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended that was not meant to be ready."""

    code: int
    told: str


@dataclass
class GatewayProcess:
    """`python -m gateway` in a folder of its own; the database is embedded unless a DSN is given."""

    home: Path
    dsn: str | None = None
    environ: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    subcommand: str = "up"
    under: tuple[str, ...] = ()
    """The program that starts it, with its arguments: `prlimit`."""
    fresh: bool = os.environ.get("SUPACLAW_CHAOS") == "full"
    """Whether it is a Python of its own, as at home; the system counts less memory for a fork, and shows the zygote's
    command and environment for it."""

    def __post_init__(self) -> None:
        self._process: Process | Forked | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._heard = asyncio.Event()

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def workspace(self) -> Path:
        return self.data / "workspace"

    @property
    def running(self) -> Process | Forked:
        assert self._process is not None, "it was started"
        return self._process

    # --- its life ---

    def configure(self, config: Json | str) -> None:
        """Write config.json as an editor would: beside it, then in its place."""
        beside = self.home / "config.json.new"
        beside.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
        beside.replace(self.home / "config.json")

    async def start(self, **environ: str) -> None:
        """Return once it says `ready`."""
        await self.spawn(**environ)
        await self.hears("ready")

    async def spawn(self, **environ: str) -> None:
        """Start it and do not wait."""
        self.home.mkdir(exist_ok=True)
        self.told.clear()
        self.__dict__.pop("url", None)
        self._process = await self.run(self.subcommand, **environ)
        self._readers = [
            asyncio.create_task(self._read(stream)) for stream in (self._process.stdout, self._process.stderr) if stream
        ]

    async def refused(self, **environ: str) -> Ended:
        """Start it and wait until it gives up by itself."""
        await self.spawn(**environ)
        return await self.ended()

    async def ended(self) -> Ended:
        """Wait until the process has ended, for whatever reason."""
        async with asyncio.timeout(SECONDS):
            code = await self.running.wait()
            await asyncio.gather(*self._readers)
        return Ended(code, "\n".join(self.told))

    async def kill(self) -> Ended:
        """As kill -9."""
        self.running.kill()
        return await self.ended()

    async def terminate(self) -> Ended:
        """As kill; it stops in good order."""
        self.running.send_signal(signal.SIGTERM)
        return await self.ended()

    async def restart(self) -> None:
        """Kill it and start it again."""
        await self.kill()
        await self.start()

    async def close(self) -> None:
        """Leave nothing behind: neither the gateway nor its Postgres."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self.ended()
        if self.dsn is None and (self.data / "postgres").exists():
            await self.postgres.stop()

    async def command(self, *arguments: str) -> Ended:
        """Run another subcommand beside it, told where it listens."""
        process = await self.run(*arguments, SUPACLAW_PORT=self.url.rpartition(":")[2])
        try:
            out, err = await asyncio.wait_for(process.communicate(), SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Ended(process.returncode or 0, (out + err).decode())

    async def run(self, *arguments: str, **more: str) -> Process | Forked:
        """Start `supaclaw ARGUMENTS` in its home."""
        environ = self._environ(more)
        if not (self.under or self.fresh or "LD_PRELOAD" in environ):
            return await fork(arguments, environ, self.home)
        command = (*self.under, sys.executable, "-m", "gateway", *arguments)
        return await asyncio.create_subprocess_exec(
            *command, env=environ, cwd=self.home, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )

    async def hears(self, words: str) -> str:
        """Wait for a line of its output with these words in it."""
        async with asyncio.timeout(SECONDS):
            while True:
                for line in self.told:
                    if words in line:
                        return line
                if all(reader.done() for reader in self._readers):
                    raise AssertionError(f"it ended before it said {words!r}:\n" + "\n".join(self.told))
                await self._heard.wait()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        try:
            async for line in stream:
                self.told.append(line.decode(errors="replace").rstrip())
                self._say()
        finally:
            self._say()

    def _say(self) -> None:
        self._heard.set()
        self._heard = asyncio.Event()

    def _environ(self, more: Mapping[str, str]) -> dict[str, str]:
        """Nothing of the developer's own settings, keys or models reaches it, nor the tracer, which doubles its CPU."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SUPACLAW_", "COVERAGE_", "TELEGRAM_", "SLACK_"))
            and not name.endswith(("_API_KEY", "_PROXY", "_proxy"))
        }
        own = {
            "SUPACLAW_PORT": "0",
            "SUPACLAW_DATA": str(self.data),
            "OLLAMA_HOST": "127.0.0.1:1",
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.data),
            "NO_COLOR": "1",
        }
        database = {"SUPACLAW_DATABASE_URL": self.dsn} if self.dsn else {}
        return inherited | own | database | self.environ | dict(more)

    # --- what is inside ---

    @property
    def postgres(self) -> EmbeddedPostgres:
        return EmbeddedPostgres(self.data)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection of the test's own to the gateway's database."""
        dsn = self.dsn or await self.postgres.start()
        connection = await asyncpg.connect(dsn, server_settings={"search_path": "supaclaw, public"})
        try:
            yield connection
        finally:
            await connection.close()

    async def rows(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        async with self.connected() as connection:
            found: list[asyncpg.Record] = await connection.fetch(query, *arguments)
        return found

    # --- its web side ---

    @cached_property
    def url(self) -> str:
        """Where its web side is, as it said when it was ready."""
        link = next(line.split()[1] for line in self.told if line.startswith("web "))
        return link.partition("/login")[0]

    @property
    def token(self) -> str:
        return (self.data / "keys" / "local-token").read_text(encoding="ascii").strip()

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client of its web side that may do everything."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=SECONDS, trust_env=False) as client:
            yield client

    async def complete(self, text: str, *, key: str, session: str = "test") -> httpx.Response:
        """One request to /v1, as OpenAI's clients send it."""
        body = {"model": "default", "messages": [{"role": "user", "content": text}]}
        headers = {"X-Session": session, "Idempotency-Key": key}
        async with self.http() as client:
            return await client.post("/v1/chat/completions", json=body, headers=headers)


def said(response: httpx.Response) -> str:
    """The answer in a completion."""
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


async def happens(event: asyncio.Event) -> None:
    """Wait for it, but not for ever."""
    await asyncio.wait_for(event.wait(), SECONDS)


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = SECONDS) -> None:
    """Look at what tells nobody when it changes, until it holds."""
    async with asyncio.timeout(seconds):
        for _ in itertools.count():
            if await holds():
                return
            await asyncio.sleep(0.05)
