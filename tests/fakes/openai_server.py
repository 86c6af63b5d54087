"""A model provider on 127.0.0.1: OpenAI chat, Anthropic messages and Ollama's list, answering by rules.

In a test: `async with FakeModels() as models:` and `models.base_url`. Alone: `python -m tests.fakes.openai_server`.
Without a rule that matches, the reply to a user text with `mk<digits>x` is "Reply … fin<digits>x", else "ok".
Control: `POST /__mock/config {"latency_ms", "chunk_ms", "filler_words", "rules"}`, `GET /__mock/log`,
`POST /__mock/reset`.
"""

import argparse
import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

from aiohttp import web

MARKER = re.compile(r"mk(\d+)x")
Body = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A tool call to ask for; `arguments` may be JSON text, to be malformed on purpose."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Rule:
    """What to answer when `match` is found in the last user text.

    A rule applies `times` times (None: always) and, unless `after_tools`, not to a request that ends in a tool result.
    Rules with tool calls apply once per marker. `cut` ends the connection after that many chunks of the text, `stall`
    sends as many and then nothing more, `hang` never answers at all. `raw` is the body of the stream, `plain_error` an
    error told in words only. `whole` is an answer in one piece to whoever asked for a stream.
    """

    match: str = ""
    text: str | None = None
    tool_calls: tuple[Call, ...] = ()
    status: int = 200
    code: str | None = None
    param: str | None = None
    message: str = "fake failure"
    headers: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, Any] | None = None
    finish: str | None = None
    cut: int | None = None
    stall: int | None = None
    hang: bool = False
    raw: str | None = None
    plain_error: str | None = None
    whole: bool = False
    times: int | None = None
    after_tools: bool = False

    @property
    def said(self) -> str:
        return self.text if self.text is not None else "" if self.tool_calls else "ok"


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    model: str
    last_user: str
    last_role: str
    headers: Mapping[str, str]
    body: Body

    @property
    def marker(self) -> str | None:
        return max(MARKER.findall(self.last_user), key=int, default=None)


class FakeModels:
    """The server. `dropped` is set when a client leaves before its answer is complete."""

    def __init__(self, *rules: Rule, port: int = 0, latency_ms: float = 0, keep: int = 1000) -> None:
        self.rules = list(rules)
        self.latency_ms = latency_ms
        self.chunk_ms = 0.0
        self.filler_words = 20
        self.ollama_models: tuple[str, ...] = ()
        self.count = 0
        self.asked: deque[Asked] = deque(maxlen=keep)
        self.started = asyncio.Event()
        self.dropped = asyncio.Event()
        self.clients: set[object] = set()
        self._port = port
        self._used: dict[object, int] = {}
        self._runner = web.AppRunner(self._app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def bodies(self) -> list[Body]:
        return [asked.body for asked in self.asked]

    def reset(self) -> None:
        self.count = 0
        self.asked.clear()
        self.clients.clear()
        self._used.clear()
        self.started.clear()
        self.dropped.clear()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        for prefix in ("/v1", ""):
            app.router.add_post(f"{prefix}/chat/completions", self._chat)
            app.router.add_post(f"{prefix}/responses", self._responses)
            app.router.add_post(f"{prefix}/messages", self._anthropic)
            app.router.add_post(f"{prefix}/audio/transcriptions", self._transcribe)
            app.router.add_post(f"{prefix}/audio/speech", self._speak)
            app.router.add_post(f"{prefix}/embeddings", self._embed)
            app.router.add_get(f"{prefix}/models", self._models)
        app.router.add_get("/api/tags", self._tags)
        app.router.add_post("/__mock/config", self._config)
        app.router.add_get("/__mock/log", self._log)
        app.router.add_post("/__mock/reset", self._reset)
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        return await self._answer(request, body, body["messages"], OpenAI(body))

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        """Answers as the `raw` text of its rule says."""
        body = await request.json()
        return await self._answer(request, body, [item for item in body["input"] if "role" in item], OpenAI(body))

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        return await self._answer(request, body, [anthropic_as_openai(m) for m in body["messages"]], Anthropic(body))

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        """The rule is looked up by the name of the sound file."""
        form = await request.post()
        file = form["file"]
        assert isinstance(file, web.FileField)
        body = {"model": form["model"], "audio": file.file.read().decode("latin-1")}
        rule = self._rule(self._note(request, body, [{"role": "user", "content": file.filename}]))
        if rule.status != 200:
            return web.json_response(OpenAI(body).error(rule), status=rule.status)
        return web.json_response({"text": rule.said})

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        """The rule is looked up by the text; the sound is what it says."""
        body = await request.json()
        rule = self._rule(self._note(request, body, [{"role": "user", "content": body["input"]}]))
        if rule.status != 200:
            return web.json_response(OpenAI(body).error(rule), status=rule.status)
        return web.Response(body=rule.said.encode("latin-1"), content_type="audio/ogg")

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        """A vector is 1 and how often each of seven letters occurs. A rule is looked up by the texts, one a line."""
        body = await request.json()
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        rule = self._rule(self._note(request, body, [{"role": "user", "content": "\n".join(texts)}]))
        if rule.status != 200:
            return web.json_response(OpenAI(body).error(rule), status=rule.status, headers=rule.headers)
        if rule.hang:
            await asyncio.Event().wait()
        if rule.raw is not None:
            return web.Response(text=rule.raw, content_type="application/json")
        vectors = [[1.0, *(float(text.lower().count(letter)) for letter in "aeinort")] for text in texts]
        data = [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)]
        usage = {"prompt_tokens": 10, "total_tokens": 10}
        return web.json_response({"object": "list", "model": body["model"], "data": data[::-1], "usage": usage})

    async def _answer(
        self, request: web.Request, body: Body, messages: Sequence[Body], style: "OpenAI | Anthropic"
    ) -> web.StreamResponse:
        asked = self._note(request, body, messages)
        try:
            if self.latency_ms:
                await asyncio.sleep(self.latency_ms / 1000)
            rule = self._rule(asked)
            if rule.hang:
                await asyncio.Event().wait()
            if rule.plain_error is not None:
                return web.json_response({"error": rule.plain_error}, status=rule.status)
            if rule.status != 200:
                return web.json_response(style.error(rule), status=rule.status, headers=rule.headers)
            if rule.whole or not body.get("stream"):
                return web.json_response(style.whole(rule))
            return await self._stream(request, rule, style)
        except (asyncio.CancelledError, ConnectionError):
            self.dropped.set()
            raise

    def _note(self, request: web.Request, body: Body, messages: Sequence[Body]) -> Asked:
        last_role = messages[-1]["role"] if messages else ""
        asked = Asked(
            request.path, str(body.get("model")), last_user_text(messages), last_role, dict(request.headers), body
        )
        self.count += 1
        self.asked.append(asked)
        self.clients.add(request.transport.get_extra_info("peername") if request.transport else None)
        self.started.set()
        return asked

    def _rule(self, asked: Asked) -> Rule:
        for place, rule in enumerate(self.rules):
            if re.search(rule.match, asked.last_user) and (asked.last_role != "tool" or rule.after_tools):
                key = (place, asked.marker) if rule.tool_calls else place
                limit = rule.times if rule.times is not None or not rule.tool_calls else 1
                used = self._used.get(key, 0)
                if limit is None or used < limit:
                    self._used[key] = used + 1
                    return rule
        if asked.marker:
            return Rule(text=" ".join(["Reply", *["word"] * self.filler_words, f"fin{asked.marker}x"]))
        return Rule()

    async def _stream(self, request: web.Request, rule: Rule, style: "OpenAI | Anthropic") -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **rule.headers})
        await response.prepare(request)
        whole = rule.cut is None and rule.stall is None
        frames = [rule.raw.encode()] if rule.raw is not None else list(style.frames(rule, whole))
        async for data in self._paced(frames):
            await response.write(data)
        if rule.stall is not None:
            await asyncio.Event().wait()
        if rule.cut is not None and request.transport is not None:
            request.transport.close()
            return response
        await response.write_eof()
        return response

    async def _paced(self, frames: Iterable[bytes]) -> AsyncIterator[bytes]:
        if not self.chunk_ms:
            yield b"".join(frames)
            return
        for frame in frames:
            yield frame
            await asyncio.sleep(self.chunk_ms / 1000)

    async def _models(self, _: web.Request) -> web.Response:
        names = ("mock-model", "gpt-4o")
        data = [{"id": name, "object": "model", "created": 1, "owned_by": "fake"} for name in names]
        return web.json_response({"object": "list", "data": data})

    async def _tags(self, _: web.Request) -> web.Response:
        return web.json_response({"models": [{"name": name} for name in self.ollama_models]})

    async def _config(self, request: web.Request) -> web.Response:
        config = await request.json()
        for name in ("latency_ms", "chunk_ms", "filler_words"):
            setattr(self, name, config.get(name, getattr(self, name)))
        if "rules" in config:
            self.rules = [rule_from_json(rule) for rule in config["rules"]]
        return web.json_response({"rules": len(self.rules)})

    async def _log(self, _: web.Request) -> web.Response:
        entries = [{"path": a.path, "model": a.model, "last_user": a.last_user, "body": a.body} for a in self.asked]
        return web.json_response({"count": self.count, "requests": entries})

    async def _reset(self, _: web.Request) -> web.Response:
        self.reset()
        return web.json_response({})


class OpenAI:
    """Answers in the shape of OpenAI's chat completions."""

    def __init__(self, body: Body) -> None:
        self._wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self._base = {"id": f"chatcmpl-{uuid4().hex[:16]}", "created": 1, "model": body.get("model")}

    def error(self, rule: Rule) -> Body:
        kind = "server_error" if rule.status >= 500 else "invalid_request_error"
        return {"error": {"message": rule.message, "type": kind, "code": rule.code, "param": rule.param}}

    def whole(self, rule: Rule) -> Body:
        message: Body = {"role": "assistant", "content": rule.said or None}
        if rule.tool_calls:
            message["tool_calls"] = [
                {"id": call_id(call), "type": "function", "function": {"name": call.name, "arguments": call.text}}
                for call in rule.tool_calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._finish(rule)}
        return {**self._base, "object": "chat.completion", "choices": [choice], "usage": self._usage(rule)}

    def frames(self, rule: Rule, whole: bool) -> Iterable[bytes]:
        yield self._frame({"role": "assistant", "content": ""})
        for piece in shown_pieces(rule):
            yield self._frame({"content": piece})
        if not whole:
            return
        for delta in tool_call_deltas(rule.tool_calls):
            yield self._frame({"tool_calls": [delta]})
        yield self._frame({}, self._finish(rule))
        if self._wants_usage:
            yield self._event({"choices": [], "usage": self._usage(rule)})
        yield b"data: [DONE]\n\n"

    def _frame(self, delta: Body, finish: str | None = None) -> bytes:
        return self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def _event(self, body: Body) -> bytes:
        return b"data: " + json.dumps({**self._base, "object": "chat.completion.chunk", **body}).encode() + b"\n\n"

    def _finish(self, rule: Rule) -> str:
        return rule.finish or ("tool_calls" if rule.tool_calls else "stop")

    def _usage(self, rule: Rule) -> Mapping[str, Any]:
        return rule.usage or {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


class Anthropic:
    """Answers in the shape of Anthropic's messages."""

    def __init__(self, body: Body) -> None:
        self._model = body.get("model")
        self._id = f"msg_{uuid4().hex[:16]}"

    def error(self, rule: Rule) -> Body:
        return {"type": "error", "error": {"type": rule.code or "api_error", "message": rule.message}}

    def whole(self, rule: Rule) -> Body:
        return {**self._start(rule), "content": self._blocks(rule), "stop_reason": self._stop(rule)}

    def frames(self, rule: Rule, whole: bool) -> Iterable[bytes]:
        yield self._event("message_start", message=self._start(rule))
        for index, block in enumerate(self._blocks(rule)):
            if block["type"] == "text":
                yield self._event("content_block_start", index=index, content_block={"type": "text", "text": ""})
                for piece in shown_pieces(rule):
                    yield self._event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
            else:
                yield self._event("content_block_start", index=index, content_block={**block, "input": {}})
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
                yield self._event("content_block_delta", index=index, delta=delta)
            if not whole:
                return
            yield self._event("content_block_stop", index=index)
        yield self._event(
            "message_delta", delta={"stop_reason": self._stop(rule), "stop_sequence": None}, usage=self._usage(rule)
        )
        yield self._event("message_stop")

    def _start(self, rule: Rule) -> Body:
        head = {"id": self._id, "type": "message", "role": "assistant", "model": self._model}
        return {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": self._usage(rule)}

    def _blocks(self, rule: Rule) -> list[Body]:
        text = [{"type": "text", "text": rule.said}] if rule.said else []
        calls = [
            {"type": "tool_use", "id": call_id(call), "name": call.name, "input": call.arguments}
            for call in rule.tool_calls
        ]
        return [*text, *calls]

    def _stop(self, rule: Rule) -> str:
        return rule.finish or ("tool_use" if rule.tool_calls else "end_turn")

    def _usage(self, rule: Rule) -> Mapping[str, Any]:
        return rule.usage or {"input_tokens": 100, "output_tokens": 10}

    def _event(self, kind: str, **body: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **body})}\n\n".encode()


def shown_pieces(rule: Rule) -> list[str]:
    """The text in about five chunks; of a rule that stops midway, only the first ones."""
    words = re.findall(r"\S+\s*|\s+", rule.said)
    size = max(1, -(-len(words) // 5))
    pieces = ["".join(words[start : start + size]) for start in range(0, len(words), size)]
    return pieces[: rule.cut if rule.cut is not None else rule.stall]


def tool_call_deltas(calls: Sequence[Call]) -> Iterable[Body]:
    """The calls as OpenAI streams them: first the name, then the arguments in pieces, taking turns."""
    for index, call in enumerate(calls):
        head = {"name": call.name, "arguments": ""}
        yield {"index": index, "id": call_id(call), "type": "function", "function": head}
    for start in range(0, max((len(call.text) for call in calls), default=0), 7):
        for index, call in enumerate(calls):
            if piece := call.text[start : start + 7]:
                yield {"index": index, "function": {"arguments": piece}}


def call_id(call: Call) -> str:
    return call.id or f"call_{uuid4().hex[:12]}"


def text_of(content: object) -> str:
    """The text of a content field, whatever its shape."""
    match content:
        case str():
            return content
        case {"text": str(text)}:
            return text
        case {"content": inner}:
            return text_of(inner)
        case [*parts]:
            return "\n".join(map(text_of, parts))
        case _:
            return ""


def last_user_text(messages: Sequence[Body]) -> str:
    """All user messages since the last assistant message; if there are none, the last one of all."""
    newest: list[str] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            break
        if message["role"] == "user":
            newest.insert(0, text_of(message.get("content")))
    if newest:
        return "\n".join(newest)
    return next((text_of(m.get("content")) for m in reversed(messages) if m["role"] == "user"), "")


def anthropic_as_openai(message: Body) -> Body:
    """An Anthropic message with the role that OpenAI would give it."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    only_results = bool(parts) and all(part.get("type") == "tool_result" for part in parts)
    return {"role": "tool" if only_results else message["role"], "content": content}


def rule_from_json(rule: Body) -> Rule:
    """A rule as `/__mock/config` takes it."""
    calls = tuple(Call(**call) for call in rule.get("tool_calls", ()))
    return Rule(**{**rule, "tool_calls": calls})


async def serve(port: int, latency_ms: float) -> None:
    async with FakeModels(port=port, latency_ms=latency_ms, keep=10_000) as models:
        print(models.base_url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=4010)
    parser.add_argument("--latency-ms", type=float, default=0)
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.latency_ms))


if __name__ == "__main__":
    main()
