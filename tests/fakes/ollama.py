"""A fake Ollama with its own protocol, as its API documentation describes it: `/api/tags`, `show`, `ps` and `chat`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.fakes.served import Served

Body = dict[str, Any]


@dataclass(frozen=True)
class Installed:
    """One model; `window` is what it was made for."""

    name: str
    size: int = 5_000_000_000
    capabilities: Sequence[str] | None = ("completion", "tools")
    window: int = 40_960
    facts: Mapping[str, int] | None = None
    remote_host: str = ""

    @property
    def show(self) -> Body:
        facts = {"context_length": self.window, **(self.facts or {})}
        info = {"general.architecture": "x", **{f"x.{name}": value for name, value in facts.items()}}
        known = {} if self.capabilities is None else {"capabilities": list(self.capabilities)}
        return {"model_info": info, **known}


class FakeOllama(Served):
    """Answers each chat with the next of `answers`, a line each; a body with an error is a refusal."""

    def __init__(self, *models: Installed, answers: Sequence[Sequence[Body]] = ()) -> None:
        self.models = {model.name: model for model in models}
        self.answers = list(answers)
        self.loaded: dict[str, int] = {}
        self.most: int | None = None
        self.chats: list[Body] = []
        self.looked_at: list[str] = []
        """The paths at which models were looked up."""
        app = web.Application()
        app.router.add_get("/api/tags", self._tags)
        app.router.add_get("/api/ps", self._ps)
        app.router.add_post("/api/show", self._show)
        app.router.add_post("/api/chat", self._chat)
        super().__init__(app)

    async def _tags(self, _: web.Request) -> web.Response:
        listed = [{"name": m.name, "size": m.size, "remote_host": m.remote_host} for m in self.models.values()]
        return web.json_response({"models": listed})

    async def _ps(self, request: web.Request) -> web.Response:
        self.looked_at.append(request.path)
        running = [{"name": name, "context_length": window} for name, window in self.loaded.items()]
        return web.json_response({"models": running})

    async def _show(self, request: web.Request) -> web.Response:
        self.looked_at.append(request.path)
        name = (await request.json())["model"]
        model = self.models.get(name) or self.models.get(f"{name}:latest")
        return web.json_response(model.show) if model else web.json_response({"error": "not found"}, status=404)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.chats.append(body)
        if body["model"] not in self.models:
            return web.json_response({"error": f"model '{body['model']}' not found"}, status=404)
        asked = body["options"].get("num_ctx", 4_096)
        self.loaded[body["model"]] = min(asked, self.most or asked)
        lines = self.answers.pop(0)
        if "error" in lines[0] and "status" in lines[0]:
            return web.json_response({"error": lines[0]["error"]}, status=lines[0]["status"])
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        for line in lines:
            await response.write(json.dumps({"model": body["model"], **line}).encode() + b"\n")
        await response.write_eof()
        return response


def piece(**message: Any) -> Body:
    """One line that adds to the answer."""
    return {"message": {"role": "assistant", "content": "", **message}, "done": False}


def end(reason: str = "stop", prompt: int = 100, written: int = 5) -> Body:
    """The last line."""
    counted = {"prompt_eval_count": prompt, "eval_count": written}
    return {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": reason, **counted}
