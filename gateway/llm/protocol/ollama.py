"""Ollama's own chat protocol, translated from and to OpenAI's: only this one takes the length of the context.

Source: Ollama's API documentation, *Generate a chat completion*."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from itertools import count
from typing import Any

import structlog

from gateway.domain.json import Json, JsonObject
from gateway.llm.errors import ModelError
from gateway.llm.local_servers import ANSWER_SHARE, LOCAL_WINDOW, loaded_context, ollama_model
from gateway.llm.protocol.answer_reader import as_chunks
from gateway.llm.protocol.http import HttpClient
from gateway.llm.vendors import CONTEXT, Endpoint

log = structlog.get_logger(__name__)

_KEEP_ALIVE = "30m"
"""How long Ollama keeps the model in memory after an answer."""


class OllamaChat:
    """The chats of one Ollama, with one connection pool."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._http = HttpClient(endpoint.root, endpoint.key)
        self._checked: set[str] = set()

    async def close(self) -> None:
        """Close the connection pool."""
        await self._http.close()

    @asynccontextmanager
    async def chunks(self, name: str, body: JsonObject) -> AsyncGenerator[AsyncGenerator[bytes, None] | None, None]:
        """The answer to a request of OpenAI's form as chunks of that form; None if the server isn't an Ollama.

        Raises `ModelError` if it is refused.
        """
        request, begun = ollama_request(body, await self._window(name)), False
        try:
            async with self._http.post("/api/chat", request) as response:
                begun = True
                async with aclosing(as_openai(response.content.iter_any())) as chunks:
                    yield chunks
                await self._check_context(name)
        except ModelError as error:
            if begun or error.status not in (404, 405) or "model" in error.message:
                raise
            yield None

    async def _window(self, name: str) -> int:
        """The context to ask for, looked up until the server tells it: the prompt was made for the same."""
        windows, model = self._endpoint.windows, f"{self._endpoint.vendor.prefix}/{name}"
        if model not in windows:
            found = await ollama_model(self._endpoint, name)
            if found is None:
                return self._endpoint.window or LOCAL_WINDOW
            windows[model] = found.window
        return windows[model]

    async def _check_context(self, name: str) -> None:
        """Note once if the model runs with less context than was asked for: the server cuts prompts without a word."""
        model = f"{self._endpoint.vendor.prefix}/{name}"
        wanted = self._endpoint.windows.get(model)
        if wanted is None or name in self._checked:
            return
        self._checked.add(name)
        loaded = await loaded_context(self._endpoint, name)
        log.info("model.window", model=model, tokens=wanted, loaded=loaded)
        if loaded is not None and loaded < wanted:
            part = f"{CONTEXT}{wanted} tokens; it was loaded with {loaded}"
            self._endpoint.refusals.note(self._endpoint.source(name), model, part)


def ollama_request(body: JsonObject, window: int) -> JsonObject:
    """A request in Ollama's form; `window` is the context to load the model with, in tokens."""
    effort, limit = body.get("reasoning_effort"), body.get("max_tokens")
    options = {
        "num_ctx": window,
        # an answer may take the part of the context that is left for it: for a longer one Ollama drops the prompt
        "num_predict": min(limit, window // ANSWER_SHARE) if isinstance(limit, int) else limit,
        "temperature": body.get("temperature"),
        "top_p": body.get("top_p"),
    }
    sent: dict[str, Json] = {
        "model": body["model"],
        "messages": list(_messages(body["messages"])),
        "stream": True,
        "keep_alive": _KEEP_ALIVE,
        "options": {name: value for name, value in options.items() if value is not None},
        "tools": body.get("tools") or None,
        "think": effort if effort is None or "gpt-oss" in str(body["model"]) else effort != "none",
        "format": _form(body.get("response_format")),
    }
    return {name: value for name, value in sent.items() if value is not None}


def as_openai(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The lines of an answer as chunks of OpenAI's form; other payloads are passed on as they are.

    Raises `ModelError` past the bounds of an answer.
    """
    places = count()
    return as_chunks(body, lambda line: _chunk(line, places))


def _messages(messages: Any) -> Iterator[JsonObject]:
    names: dict[str, str] = {}
    for message in messages:
        said: dict[str, Json] = {"role": message["role"], "content": ""}
        match message.get("content"):
            case str(text):
                said["content"] = text
            case list(parts):
                said["content"] = "\n".join(part["text"] for part in parts if part["type"] == "text")
                pictures = (part["image_url"]["url"] for part in parts if part["type"] == "image_url")
                said["images"] = [address.partition(",")[2] for address in pictures]
        if thinking := message.get("thinking"):
            said["thinking"] = thinking
        if calls := message.get("tool_calls"):
            names |= {call["id"]: call["function"]["name"] for call in calls}
            said["tool_calls"] = [_call(call["function"]) for call in calls]
        if (made_by := names.get(message.get("tool_call_id", ""))) is not None:
            said["tool_name"] = made_by
        yield said


def _call(function: dict[str, Any]) -> JsonObject:
    return {"function": {"name": function["name"], "arguments": json.loads(function["arguments"])}}


def _form(wanted: Any) -> Json:
    match wanted:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
        case {"type": "json_object"}:
            return "json"
    return None


def _chunk(line: bytes, places: Iterator[int]) -> bytes:
    """The line in OpenAI's form, its calls at the next places: Ollama sends each call whole, often without an id."""
    with suppress(ValueError, TypeError, RecursionError):
        match json.loads(line):
            case dict(rest) if not rest.get("error") and ("message" in rest or "done" in rest):
                message = rest.get("message") or {}
                calls = message.get("tool_calls") or []
                delta = message | {"tool_calls": [each | {"index": next(places)} for each in calls]}
                finish = (rest.get("done_reason") or "stop") if rest.get("done") else None
                usage = {"prompt_tokens": rest.get("prompt_eval_count"), "completion_tokens": rest.get("eval_count")}
                whole = {"choices": [{"delta": delta, "finish_reason": finish}], "usage": usage if finish else None}
                return json.dumps(whole).encode()
    return line
