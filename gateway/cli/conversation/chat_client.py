"""A client of the running gateway's chat API; survives restarts of the gateway without losing a message."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
from pydantic import JsonValue, TypeAdapter

from gateway.cli.connections.local_gateway import LocalGateway, local_token
from gateway.domain.errors import OwnerMustAct, TryAgainLater, explained
from gateway.domain.json import OBJECT

RETRY_SECONDS = 60.0
PAUSE_SECONDS = 0.3
_FILES = TypeAdapter(list[dict[str, JsonValue]])


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The answer to a message, with the files that the agent sent; `failed` means that it could not answer."""

    text: str
    failed: bool
    files: tuple[Mapping[str, JsonValue], ...] = ()


@dataclass(frozen=True, slots=True)
class ChatClient:
    """A client for one chat. Every method waits up to a minute for a gateway that is restarting."""

    gateway: LocalGateway
    chat: str = "main"

    async def ask(self, text: str, files: Sequence[Path] = ()) -> ChatAnswer:
        """Send a message or a command and wait for the answer; raises `SupaclawError`."""
        async with self._client() as http:
            sent = await self._send(http, text, [await self._upload(http, file) for file in files])
            if sent["kind"] == "ignored":
                raise OwnerMustAct(f"not sent: {sent['reason']}; /help lists the commands")
            while True:
                answer = await self._request(http, "GET", f"/api/answers/{sent['inbox_id']}?wait=25")
                if answer.status_code == 200:
                    reply = OBJECT.validate_json(answer.content)
                    failed = bool(reply["notice"]) and sent["kind"] == "message"
                    return ChatAnswer(str(reply["text"]), failed, tuple(_FILES.validate_python(reply["files"])))

    async def stop(self) -> None:
        """Stop the answer that is being written."""
        async with self._client() as http:
            await self._send(http, "/stop")

    async def events(self) -> AsyncIterator[Mapping[str, JsonValue]]:
        """Yield the events of the chat, without end; after a reconnect, a snapshot comes first."""
        which = {"chat": self.chat}
        while True:
            try:
                async with self._client() as http, http.stream("GET", "/api/events", params=which) as stream:
                    async for line in stream.aiter_lines():
                        if stream.is_success and line.startswith("data: "):
                            yield OBJECT.validate_json(line.removeprefix("data: "))
            except httpx.TransportError:
                pass
            await asyncio.sleep(PAUSE_SECONDS)

    async def _upload(self, http: httpx.AsyncClient, file: Path) -> JsonValue:
        return OBJECT.validate_json((await self._request(http, "POST", "/api/files", file=file)).content)["id"]

    async def _send(self, http: httpx.AsyncClient, text: str, files: Sequence[JsonValue] = ()) -> dict[str, JsonValue]:
        body = {"text": text, "files": list(files), "chat": self.chat, "client_id": str(uuid4())}
        answer = await self._request(http, "POST", "/api/messages", json.dumps(body))
        return OBJECT.validate_json(answer.content)

    async def _request(
        self, http: httpx.AsyncClient, method: str, path: str, body: str | None = None, file: Path | None = None
    ) -> httpx.Response:
        """Retry until there is a response: each message has a client id, so the gateway ignores duplicates."""
        problem = ""
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                while True:
                    try:
                        answer = await self._once(http, method, path, body, file)
                    except httpx.TransportError as exc:
                        problem = f"it cannot be reached ({type(exc).__name__})"
                    else:
                        if answer.status_code < 400:
                            return answer
                        problem = _problem(answer)
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise TryAgainLater(f"the gateway at {self.gateway.url} does not answer: {problem}") from None

    async def _once(
        self, http: httpx.AsyncClient, method: str, path: str, body: str | None, file: Path | None
    ) -> httpx.Response:
        if file is None:
            return await http.request(method, path, content=body, headers={"Content-Type": "application/json"})
        with explained(f"{file} cannot be read"):
            opened = file.open("rb")
        with opened:
            return await http.request(method, path, files={"file": (file.name, opened)})

    def _authorized(self, request: httpx.Request) -> httpx.Request:
        """Add the token, which changes with each start of the gateway, so each request reads it."""
        request.headers["Authorization"] = f"Bearer {local_token(self.gateway.environment)}"
        return request

    def _client(self) -> httpx.AsyncClient:
        timeout = httpx.Timeout(40, connect=5)
        return httpx.AsyncClient(base_url=self.gateway.url, auth=self._authorized, timeout=timeout)


def _problem(answer: httpx.Response) -> str:
    """The message of an error response; raises `OwnerMustAct` if a retry can't help."""
    try:
        message = str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"it answers {answer.status_code}"
    if 400 <= answer.status_code < 500 and answer.status_code not in {401, 429}:
        raise OwnerMustAct(message)
    return message
