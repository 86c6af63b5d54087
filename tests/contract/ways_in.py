"""The ways in to a whole gateway, as whoever writes there sees them."""

import asyncio
import base64
import itertools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from html import unescape
from typing import Any, Protocol

import httpx

from gateway.domain.conversation.inbound import Inbound
from tests.contract.telegram import telegram_on
from tests.fakes.log import Log
from tests.fakes.telegram import FakeTelegram
from tests.web.conftest import BEARER, Web

OWNER, STRANGER = 77, 666


class WayIn(Protocol):
    """One person's end of it; what was heard outlives a restart of the gateway."""

    async def connect(self, web: Web) -> None:
        """Begin to talk to a gateway, or go on with the next one."""

    async def leave(self) -> None:
        """Let go of the gateway."""

    async def say(self, text: str, id: int | None = None) -> bool:
        """Hand a message over; whether it was taken. The same `id` means the same message again."""

    async def say_with_file(self, text: str, data: bytes, name: str, mime: str) -> None:
        """Hand a message over that has a file."""

    async def say_nonsense(self) -> None:
        """Send something nobody can read; returns once it was turned away."""

    async def stranger_says(self, text: str) -> None:
        """Someone whom nobody let in writes; returns once that was turned away."""

    async def answers(self, words: str) -> Sequence[str]:
        """Wait until these words are part of an answer; all the answers so far, to whomever, in order."""


class Telegram:
    """The bot is a part of the gateway; its people are on the other side."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._platform = FakeTelegram()
        self._running: list[asyncio.Task[None]] = []
        self._ids = itertools.count(1000)

    async def connect(self, web: Web) -> None:
        await self._platform.start()
        self._channel = telegram_on(self._platform, Log())
        await self._channel.open()
        await web.path.people.learn(web.path.database, "Ada", {"telegram": str(OWNER)})
        await web.path.outbound.adopt("telegram", self._channel)

        async def accept(batch: Sequence[Inbound]) -> None:
            await web.path.inbound.accept(batch)

        self._outbound = web.path.outbound
        work = (self._channel.receive(accept), self._outbound.run())
        self._running = [self._group.create_task(each) for each in work]

    async def leave(self) -> None:
        """What is on its way arrives, so that nothing is left in doubt."""
        await self._outbound.drain(10)
        await _end(self._running)
        await self._channel.close()
        await self._platform.stop()

    async def say(self, text: str, id: int | None = None) -> bool:
        self._platform.say(text, OWNER, message_id=id or next(self._ids))
        await self._all_acknowledged()
        return True

    async def say_with_file(self, text: str, data: bytes, name: str, mime: str) -> None:
        document = self._platform.keep(data) | {"file_name": name, "mime_type": mime}
        self._platform.say(None, OWNER, message_id=next(self._ids), caption=text, document=document)
        await self._all_acknowledged()

    async def say_nonsense(self) -> None:
        self._platform.push({"message": {"message_id": "x", "chat": []}})
        await self._all_acknowledged()

    async def stranger_says(self, text: str) -> None:
        self._platform.say(text, STRANGER)
        await self._all_acknowledged()

    async def answers(self, words: str) -> Sequence[str]:
        await self._platform.wait_for(lambda platform: any(words in sent.text for sent in platform.sent))
        return [sent.text for sent in self._platform.sent]

    async def _all_acknowledged(self) -> None:
        await self._platform.wait_for(lambda platform: not platform.pending)


class _OverHttp(ABC):
    """A client that posts what it says, and keeps each answer by the id it came with."""

    path: str
    files_path: str

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: list[asyncio.Task[None]] = []
        self._ids = itertools.count(1000)
        self._heard: dict[str, str] = {}
        self._changed = asyncio.Event()

    async def connect(self, web: Web) -> None:
        self._client = httpx.AsyncClient(base_url=web.url, headers={"Origin": web.url, **BEARER}, timeout=10)

    async def leave(self) -> None:
        await _end(self._running)
        await self._client.aclose()

    async def say(self, text: str, id: int | None = None) -> bool:
        return _taken(await self._client.post(self.path, **self._message(text, str(id or next(self._ids)))))

    async def say_with_file(self, text: str, data: bytes, name: str, mime: str) -> None:
        kept = await self._client.post(self.files_path, files={"file": (name, data, mime)})
        assert kept.status_code == 201
        message = self._message(text, str(next(self._ids)))
        for fields in message.values():
            fields["files"] = [kept.json()["id"]]
        assert _taken(await self._client.post(self.path, **message))

    async def say_nonsense(self) -> None:
        assert not _taken(await self._client.post(self.path, content=b"{"))

    async def stranger_says(self, text: str) -> None:
        """Once with nothing to show, once with a forged token and cookie."""
        origin = {name: self._client.headers[name] for name in ("Origin", "Host") if name in self._client.headers}
        forged = httpx.AsyncClient(headers={**origin, "Authorization": "Bearer claw_x"}, cookies={"claw": "claw_x"})
        for stranger in (httpx.AsyncClient(headers=origin), forged):
            async with stranger:
                answer = await stranger.post(self._client.base_url.join(self.path), **self._message(text, "1"))
            assert answer.status_code == 401

    async def answers(self, words: str) -> Sequence[str]:
        async with asyncio.timeout(10):
            while not any(words in text for text in self._heard.values()):
                await self._changed.wait()
        return list(self._heard.values())

    @abstractmethod
    def _message(self, text: str, id: str) -> dict[str, Any]:
        """What is posted, as httpx takes it."""

    def _hear(self, id: str, text: str) -> None:
        assert self._heard.setdefault(id, text) == text, "an answer never changes"
        self._changed.set()
        self._changed = asyncio.Event()

    def _follow(self, path: str, take: Callable[[Any], None]) -> None:
        async def follow() -> None:
            async with self._client.stream("GET", path, timeout=None) as stream:
                async for data in _frames(stream):
                    take(json.loads(data))

        self._running.append(self._group.create_task(follow()))


class Terminal(_OverHttp):
    """A program with the local token."""

    path = "/api/messages"
    files_path = "/api/files"

    async def connect(self, web: Web) -> None:
        await super().connect(web)
        self._follow("/api/events", self._take)

    def _message(self, text: str, id: str) -> dict[str, Any]:
        return {"json": {"text": text, "client_id": id}}

    def _take(self, event: Mapping[str, Any]) -> None:
        for row in (
            [*event.get("messages", ()), event.get("message")] if event["type"] in {"snapshot", "message"} else ()
        ):
            if row and row["kind"] in {"assistant", "notice"}:
                self._hear(str(row["id"]), row["text"])


class Browser(_OverHttp):
    """The chat page of someone who signed in once."""

    path = "/chat"
    files_path = "/chat/files"
    _answer = re.compile(
        r'<(article|div) class="message (?:assistant|notice|notice failure)" id="(\w+)"[^>]*>'
        r'((?:(?!<(?:article|div) class="message).)*)</\1>',
        re.DOTALL,
    )
    _about = re.compile(r'<footer.*?</footer>|<code class="command">.*?</code>|<button.*?</button>', re.DOTALL)

    def __init__(self, group: asyncio.TaskGroup) -> None:
        super().__init__(group)
        self._cookies: dict[str, str] = {}

    async def connect(self, web: Web) -> None:
        if not self._cookies:
            async with web.sign_in() as browser:
                self._cookies = dict(browser.cookies)
        self._client = httpx.AsyncClient(base_url=web.url, headers=web.at_page, cookies=self._cookies)
        self._follow("/chat/events", self._take)

    def _message(self, text: str, id: str) -> dict[str, Any]:
        return {"data": {"text": text, "client_id": id}}

    def _take(self, patches: Sequence[Sequence[Any]]) -> None:
        for _, *rest in patches:
            for _, id, html in self._answer.findall(str(rest[-1])):
                self._hear(id, unescape(re.sub(r"<[^>]*>", "", self._about.sub("", html))).strip())


class Api(_OverHttp):
    """A client of the OpenAI-compatible API; it asks again for what it has no answer to."""

    path = "/v1/chat/completions"

    def __init__(self, group: asyncio.TaskGroup) -> None:
        super().__init__(group)
        self._unanswered: dict[int, str] = {}

    async def connect(self, web: Web) -> None:
        await super().connect(web)
        for id, text in self._unanswered.items():
            await self.say(text, id)

    async def say(self, text: str, id: int | None = None) -> bool:
        id = id or next(self._ids)
        taken = await self._ask(id, self._message(text, str(id)))
        if taken:
            self._unanswered[id] = text
        return taken

    async def say_with_file(self, text: str, data: bytes, name: str, mime: str) -> None:
        id, encoded = next(self._ids), base64.b64encode(data).decode()
        file = {"filename": name, "file_data": f"data:{mime};base64,{encoded}"}
        message = self._message(text, str(id))
        message["json"]["messages"][0]["content"] = [{"type": "text", "text": text}, {"type": "file", "file": file}]
        assert await self._ask(id, message)

    async def _ask(self, id: int, message: dict[str, Any]) -> bool:
        request = self._client.build_request("POST", self.path, **message)
        answer = await self._client.send(request, stream=True)
        if answer.is_error:
            await answer.aread()
        if not _taken(answer):
            return False
        self._running.append(self._group.create_task(self._read(id, answer)))
        return True

    def _message(self, text: str, id: str) -> dict[str, Any]:
        body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": text}]}
        return {"json": body, "headers": {"X-Session": "main", "Idempotency-Key": id}}

    async def _read(self, id: int, answer: httpx.Response) -> None:
        """A failed turn ends the stream with an error: then that is what the client is told."""
        text, completion = "", ""
        try:
            async for data in _frames(answer):
                chunk = {} if data == "[DONE]" else json.loads(data)
                completion = chunk.get("id", completion)
                text += "".join(choice["delta"].get("content", "") for choice in chunk.get("choices", ()))
                if data == "[DONE]" or "error" in chunk:
                    self._hear(completion, chunk["error"]["message"] if chunk else text)
                    self._unanswered.pop(id, None)
        finally:
            await answer.aclose()


async def _frames(stream: httpx.Response) -> AsyncIterator[str]:
    async for line in stream.aiter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


def _taken(answer: httpx.Response) -> bool:
    """A refusal says why, in one line."""
    if answer.is_success:
        return True
    assert answer.status_code in {400, 413}
    message = answer.json()["error"]["message"]
    assert 0 < len(message) < 200
    assert "\n" not in message
    return False


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tasks.clear()
