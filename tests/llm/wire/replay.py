"""A server that sends what a file of an exchange says, whatever it is asked, and what the real client makes of it."""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gateway.domain.conversation.model import (
    AssistantMessage,
    Image,
    ModelsExhausted,
    Prompt,
    PromptMessage,
    Reply,
    Restarted,
    SystemMessage,
    TextDelta,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from gateway.domain.principals import Label
from tests.fakes.served import Served
from tests.llm.chain import FakeClock, client_for
from tests.llm.wire.exchange import Exchange, Response

_STRING = {"type": "string"}
TOOLS = (
    ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {"path": _STRING}}, Label.OWNER),
    ToolSpec(
        "write_file", "Writes.", {"type": "object", "properties": {"path": _STRING, "content": _STRING}}, Label.OWNER
    ),
    ToolSpec("list_files", "Lists the files.", {"type": "object", "properties": {}}, Label.OWNER),
    ToolSpec("wait", "Waits.", {"type": "object", "properties": {"seconds": {"type": "integer"}}}, Label.OWNER),
)
_PICTURE = Image("image/gif", b64decode("R0lGODlhAQABAAAAACwAAAAAAQABAAACADs="))


class Replay(Served):
    """The server; `bodies` are the requests that arrived."""

    def __init__(self, responses: tuple[Response, ...]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._responses = responses
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/api/show", self._unknown)
        app.router.add_post("/{path:.*}", self._answer)
        super().__init__(app)

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    async def _unknown(self, _: web.Request) -> web.Response:
        """Nothing is said of models."""
        return web.json_response({"error": "model not found"}, status=404)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        response = self._responses[min(len(self.bodies), len(self._responses) - 1)]
        self.bodies.append(await request.json())
        answer = web.StreamResponse(status=response.status, headers=response.headers)
        await answer.prepare(request)
        for piece in response.pieces:
            await answer.write(piece)
        await answer.write_eof()
        return answer


@dataclass(slots=True)
class Outcome:
    """The course of an exchange: the text as it grew, the reply or the failure, pauses and requests."""

    shown: str
    reply: Reply | None
    failure: ModelsExhausted | None
    waits: list[float]
    bodies: list[dict[str, Any]]


async def outcome_of(exchange: Exchange) -> Outcome:
    """Ask the real client, which reaches the server over a socket and waits by a clock of its own."""
    clock, found = FakeClock(), Outcome("", None, None, [], [])
    async with Replay(exchange.responses) as server:
        client = await client_for(server.url, exchange.model, clock=clock, api=exchange.api, thinking=exchange.thinking)
        try:
            async for event in client.stream(_prompt(exchange)):
                match event:
                    case TextDelta(text):
                        found.shown += text
                    case Restarted():
                        found.shown = ""
                    case Reply():
                        found.reply = event
                    case _:
                        pass
        except ModelsExhausted as error:
            found.failure = error
        await client.close()
        found.waits, found.bodies = clock.slept, server.bodies
    return found


def _prompt(exchange: Exchange) -> Prompt:
    asked = UserMessage(exchange.ask, (_PICTURE,) if exchange.image else ())
    return Prompt((*map(_message, exchange.messages), asked), TOOLS)


def _message(message: Mapping[str, str]) -> PromptMessage:
    match message["role"]:
        case "tool":
            return ToolMessage("call_1", message["content"])
        case "assistant":
            return AssistantMessage(message["content"])
        case "system":
            return SystemMessage(message["content"])
        case _:
            return UserMessage(message["content"])
