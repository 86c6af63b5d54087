"""A real OpenClaw from npm, with a state and a workspace of its own, its gateway and its command line."""

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Any

VERSION = "2026.9.6"
BUILD = Path("build/openclaw").absolute()
BIN = BUILD / "node_modules" / ".bin"
SECONDS = 400.0
"""Its gateway starts in 10 on an idle machine, and in more than 100 on a busy one."""
MAIN = "agent:main:main"
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{10,}|[0-9a-f]{16,}")
SIDE = {"-wal", "-shm"}
TABLES = "select name from sqlite_master where type = 'table'"
Snapshot = dict[str, bytes]


def install() -> None:
    """Node 24 first: OpenClaw's package refuses to be installed by an older one."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for package, made in (("node@24", "node"), (f"openclaw@{VERSION}", "openclaw")):
        if not (BIN / made).exists():
            npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(BUILD), package]
            subprocess.run(npm, check=True, env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"})


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class RealOpenClaw:
    """One installation below `home`; its settings are JSON5 with a comment, as people write them."""

    home: Path
    models_url: str
    port: int = field(default_factory=free_port)
    _gateway: Process | None = None

    @property
    def state(self) -> Path:
        return self.home / "state"

    @property
    def workspace(self) -> Path:
        return self.home / "workspace"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "OPENCLAW_STATE_DIR": str(self.state),
            "OPENCLAW_SKIP_UPDATE_CHECK": "1",
            "OPENCLAW_NO_RESPAWN": "1",
            "NO_COLOR": "1",
        }

    def make(self) -> None:
        for folder in (self.state, self.workspace / "memory"):
            folder.mkdir(parents=True)
        model: dict[str, Any] = {
            "id": "gpt-4o-mini",
            "name": "Mock",
            "contextWindow": 128000,
            "maxTokens": 4096,
            "input": ["text"],
            "reasoning": False,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        }
        provider = {"baseUrl": self.models_url, "apiKey": "x", "api": "openai-completions", "models": [model]}
        settings = {
            "gateway": {
                "mode": "local",
                "bind": "loopback",
                "port": self.port,
                "auth": {"mode": "token", "token": "t" * 24},
            },
            "update": {"checkOnStart": False},
            "tools": {"toolSearch": False},
            "models": {"providers": {"mock": provider}},
            "agents": {
                "defaults": {
                    "workspace": str(self.workspace),
                    "model": {"primary": "mock/gpt-4o-mini"},
                    "heartbeat": {"every": "0m"},
                }
            },
        }
        text = json.dumps(settings, indent=1).replace('"update":', "// quiet, please\n update:")
        (self.state / "openclaw.json").write_text(text)
        (self.workspace / "MEMORY.md").write_text("## Preferences\n- Ada wants answers in Italian, mk77x\n")
        (self.workspace / "memory" / "2026-03-01.md").write_text(
            "## 09:15\n**User** 09:15:02: the boat is called Nina\n"
        )

    def snapshot(self) -> Snapshot:
        """The configuration and the workspace."""
        files = [self.state / "openclaw.json", *sorted(self.workspace.rglob("*"))]
        return {
            str(file.relative_to(self.home)): file.read_bytes() if file.is_file() else b"folder"
            for file in files
            if ".git" not in file.parts
        }

    def ours_in_state(self) -> list[str]:
        """Files of ours, but for the copies that OpenClaw makes of plugins it runs."""
        found = (str(file.relative_to(self.state)) for file in self.state.rglob("*"))
        return sorted(name for name in found if "supaclaw" in name and not name.startswith("tmp/"))

    def own_writes(self) -> set[str]:
        """Files of its state and tables of its databases, with `*` for ids; but for its working copies and logs."""
        files = [file for file in self.state.rglob("*") if file.is_file()]
        names = {file: ID.sub("*", str(file.relative_to(self.state))) for file in files}
        found = {name for name in names.values() if not name.startswith(("tmp/", "logs/")) and name[-4:] not in SIDE}
        for file in files:
            if file.suffix == ".sqlite":
                with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
                    found |= {f"{names[file]}: {table}" for (table,) in database.execute(TABLES)}
        return found

    def has_kept(self, text: str) -> Callable[[], Awaitable[bool]]:
        """Whether it is in OpenClaw's own transcripts."""

        def look() -> bool:
            files = self.state.glob("agents/main/agent/openclaw-agent.sqlite*")
            return any(text.encode() in file.read_bytes() for file in files)

        async def kept() -> bool:
            return await asyncio.to_thread(look)

        return kept

    async def start(self) -> None:
        """Return once its gateway says `ready`."""
        log = self.home / "gateway.log"
        command = (str(BIN / "openclaw"), "gateway", "run", "--port", str(self.port))
        with log.open("wb") as out:
            self._gateway = await asyncio.create_subprocess_exec(
                *command, env=self._environ(), stdin=DEVNULL, stdout=out, stderr=STDOUT, start_new_session=True
            )
        async with asyncio.timeout(SECONDS):
            while b"[gateway] ready" not in log.read_bytes():
                assert self._gateway.returncode is None, log.read_text()
                await asyncio.sleep(0.2)

    async def stop(self) -> None:
        if self._gateway and self._gateway.returncode is None:
            os.killpg(self._gateway.pid, signal.SIGTERM)
            try:
                await asyncio.wait_for(self._gateway.wait(), 10)
            except TimeoutError:
                os.killpg(self._gateway.pid, signal.SIGKILL)
                await self._gateway.wait()

    async def cli(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            str(BIN / "openclaw"), *arguments, env=self._environ(), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), SECONDS)
        assert process.returncode == 0, (out + err).decode()
        return out.decode()

    async def call(self, method: str, **params: object) -> str:
        return await self.cli("gateway", "call", method, "--params", json.dumps(params), "--json")

    async def says(self, text: str, key: str, session: str = MAIN) -> None:
        """A message in the web chat; returns when it is accepted."""
        await self.call("chat.send", sessionKey=session, message=text, idempotencyKey=key)

    def _environ(self) -> dict[str, str]:
        return os.environ | self.environ | {"HOME": str(self.home)}
