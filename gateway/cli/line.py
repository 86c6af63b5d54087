"""The line to a running gateway: messages go in, answers come out, and a restart in between loses neither."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx
from pydantic import JsonValue, TypeAdapter

from gateway.cli.companion import Place
from gateway.domain.errors import OwnerMustAct, TryAgainLater

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.3
_OBJECT = TypeAdapter(dict[str, JsonValue])
_FILES = TypeAdapter(list[dict[str, JsonValue]])


@dataclass(frozen=True, slots=True)
class Answered:
    """What was said to a message; `failed` means the agent did not answer it. `files` are those it sent."""

    text: str
    failed: bool
    files: tuple[Mapping[str, JsonValue], ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """Speaks for one chat. Every method waits for a gateway that is restarting, for a minute at most."""

    place: Place
    chat: str = field(default="main")

    async def ask(self, text: str, files: Sequence[Path] = ()) -> Answered:
        """Send a message or a command and wait for what is said to it; raises `SupaclawError`."""
        async with self._client() as client:
            uploaded = [await self._upload(client, file) for file in files]
            sent = await self._send(client, text, uploaded)
            if sent["kind"] == "ignored":
                raise OwnerMustAct(f"not sent: {sent['reason']}; /help lists the commands")
            while True:
                answer = await self._request(client, "GET", f"/api/answers/{sent['inbox_id']}?wait=25")
                if answer.status_code == 200:
                    told = _OBJECT.validate_json(answer.content)
                    failed = bool(told["notice"]) and sent["kind"] == "message"
                    return Answered(str(told["text"]), failed, tuple(_FILES.validate_python(told["files"])))

    async def stop(self) -> None:
        """Stop the answer that is being written."""
        async with self._client() as client:
            await self._send(client, "/stop")

    async def events(self) -> AsyncIterator[Mapping[str, JsonValue]]:
        """What happens in the chat, for ever; after a break it goes on with a snapshot."""
        while True:
            try:
                async with (
                    self._client() as client,
                    client.stream("GET", "/api/events", params={"chat": self.chat}, headers=self._headers()) as stream,
                ):
                    async for line in stream.aiter_lines():
                        if stream.is_success and line.startswith("data: "):
                            yield _OBJECT.validate_json(line.removeprefix("data: "))
            except httpx.TransportError:
                pass
            await asyncio.sleep(PAUSE_SECONDS)

    async def _upload(self, client: httpx.AsyncClient, file: Path) -> JsonValue:
        answer = await self._request(client, "POST", "/api/files", file=file)
        return _OBJECT.validate_json(answer.content)["id"]

    async def _send(
        self, client: httpx.AsyncClient, text: str, files: Sequence[JsonValue] = ()
    ) -> dict[str, JsonValue]:
        body = {"text": text, "files": list(files), "chat": self.chat, "client_id": str(uuid4())}
        answer = await self._request(client, "POST", "/api/messages", json.dumps(body))
        return _OBJECT.validate_json(answer.content)

    async def _request(
        self, client: httpx.AsyncClient, method: str, path: str, body: str | None = None, file: Path | None = None
    ) -> httpx.Response:
        """Again until it is answered: a message has an id of its own, so that sending it twice is sending it once."""
        problem = ""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS) as patience:
                while True:
                    try:
                        answer = await self._once(client, method, path, body, file)
                    except httpx.TransportError as exc:
                        problem = f"it cannot be reached ({type(exc).__name__})"
                    else:
                        if answer.status_code < 400:
                            patience.reschedule(None)
                            return answer
                        problem = _problem(answer)
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise TryAgainLater(f"the gateway at {self.place.url} does not answer: {problem}") from None

    async def _once(
        self, client: httpx.AsyncClient, method: str, path: str, body: str | None, file: Path | None
    ) -> httpx.Response:
        if file is None:
            headers = {**self._headers(), "Content-Type": "application/json"}
            return await client.request(method, path, content=body, headers=headers)
        try:
            opened = file.open("rb")
        except OSError as error:
            raise OwnerMustAct(f"{file} cannot be read: {error.strerror}") from None
        with opened:
            return await client.request(method, path, files={"file": (file.name, opened)}, headers=self._headers())

    def _headers(self) -> dict[str, str]:
        """The credential is a new one after each start of the gateway."""
        return {"Authorization": f"Bearer {self.place.token()}"}

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(base_url=self.place.url, timeout=httpx.Timeout(40, connect=5)) as client:
            yield client


def _problem(answer: httpx.Response) -> str:
    """What an error says; raises `OwnerMustAct` when asking again cannot help."""
    try:
        message = str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"it answers {answer.status_code}"
    if 400 <= answer.status_code < 500 and answer.status_code not in {401, 429}:
        raise OwnerMustAct(message)
    return message
