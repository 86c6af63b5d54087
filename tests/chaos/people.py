"""Who talks to the gateway while things go wrong: people on Telegram, and programs that use /v1."""

import asyncio
import random
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram, Update
from tests.journeys.process import OWNER, GatewayProcess, Json, configured, said

CHATS = range(OWNER, OWNER + 6)


def crowd(telegram: FakeTelegram, models: FakeModels, chats: Sequence[int] = CHATS) -> Json:
    """A configuration that lets all of them in, and a model that reaches for a tool when a message says so."""
    config = configured(telegram, models)
    config["channels"]["telegram"]["allow"] = [str(chat) for chat in chats]
    models.rules = [Rule("with a tool", tool_calls=(Call("write_file", {"path": "tea.md", "content": "green"}),))]
    models.latency_ms = 60
    return config


@dataclass(frozen=True, slots=True)
class Message:
    """What someone wrote; `key` is what finds it again: `mk<number>x` in its text, a command's message id."""

    key: str
    chat: int
    update: Update


@dataclass
class Telegrammers:
    """People in several chats who keep writing; what they wrote is in `said`."""

    telegram: FakeTelegram
    chance: random.Random
    chats: Sequence[int] = CHATS
    tools: float = 0.3
    commands: float = 0.1
    said: list[Message] = field(default_factory=list)
    numbers: int = 0

    def say(self, chat: int | None = None, text: str = "message", **fields: object) -> Message:
        self.numbers += 1
        tool = " with a tool" if self.chance.random() < self.tools else ""
        where = self.chance.choice(self.chats) if chat is None else chat
        update = self.telegram.say(f"{text}{tool} mk{self.numbers}x", where, **fields)
        self.said.append(Message(f"mk{self.numbers}x", where, update))
        return self.said[-1]

    def command(self, text: str = "/ping", chat: int | None = None) -> Message:
        where = self.chance.choice(self.chats) if chat is None else chat
        update = self.telegram.say(text, where)
        self.said.append(Message(f"/{update['message']['message_id']}", where, update))
        return self.said[-1]

    async def go_on(self, seconds: float, pause: float = 0.15) -> None:
        """Write every now and then for that long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.chance.random() < self.commands:
                self.command()
            else:
                self.say()
            await asyncio.sleep(self.chance.uniform(0.0, pause))


@dataclass(frozen=True, slots=True)
class Completed:
    """A request that got its 200, or was told that its turn failed for good."""

    number: int
    answer: str
    tries: int


@dataclass
class Programs:
    """Clients of /v1 that repeat a request, under the same key, until they get an answer."""

    process: GatewayProcess
    port: int
    first: int = 100_000
    done: list[Completed] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    async def ask(self, session: str, tool: bool = False) -> Completed:
        number = self.first + len(self.asked)
        self.asked.append(number)
        text = f"request{' with a tool' if tool else ''} mk{number}x"
        tries = 0
        while True:
            tries += 1
            with suppress(httpx.TransportError, FileNotFoundError):
                response = await self._post(text, session, f"key-{number}")
                # an error that came after the first whitespace stands under a 200
                error = response.json()["error"] if '"error"' in response.text else None
                if error is None or error["code"] == "turn_failed":
                    self.done.append(Completed(number, error["message"] if error else said(response), tries))
                    return self.done[-1]
                self.errors.append(f"{response.status_code} {response.text[:200]}")
            await asyncio.sleep(0.1)

    async def go_on(self, clients: int, chance: random.Random, enough: Callable[[], bool]) -> None:
        """So many sessions at once, one request after another, until it is enough."""

        async def one(client: int) -> None:
            while not enough():
                await self.ask(f"program-{client}", tool=chance.random() < 0.3)

        await asyncio.gather(*map(one, range(clients)))

    async def _post(self, text: str, session: str, key: str) -> httpx.Response:
        body = {"model": "default", "messages": [{"role": "user", "content": text}]}
        headers = {"Authorization": f"Bearer {self.process.token}", "X-Session": session, "Idempotency-Key": key}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            return await client.post(url, json=body, headers=headers)


def free_port() -> int:
    """One that stays the same over restarts."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


async def holds(condition: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Whether it comes true within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if await condition():
            return True
        await asyncio.sleep(0.1)
    return False
