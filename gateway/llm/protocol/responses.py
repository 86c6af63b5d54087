"""OpenAI's Responses API, translated from and to chat completions: some models think and use tools by this one only.

Source: OpenAI's API reference, *Create a model response* and *Streaming events*."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gateway.domain.json import Json, JsonObject
from gateway.llm.protocol.answer_reader import as_chunks
from gateway.llm.protocol.refused_parts import SUMMARY

STATELESS: JsonObject = {"store": False, "include": ["reasoning.encrypted_content"]}
"""The provider keeps nothing, and sends the reasoning in a form that only it can read, to get it back."""
_REASONING = "reasoning_items"
"""The field of a message or a call with the reasoning before it, each item as JSON."""
_OF_CHATS = ("messages", "stream_options", "max_tokens", "max_completion_tokens", "reasoning_effort", SUMMARY)


def responses_request(body: JsonObject) -> JsonObject:
    """A chat's request in the form of this API."""
    chat: dict[str, Any] = dict(body)
    first, *rest = chat["messages"]
    instructed = first["role"] == "system"
    effort = {"effort": chat.get("reasoning_effort"), "summary": chat.get(SUMMARY)}
    sent = {name: value for name, value in chat.items() if name not in _OF_CHATS}
    sent |= {
        "instructions": first["content"] if instructed else None,
        "input": [item for message in (rest if instructed else chat["messages"]) for item in _items(message)],
        "max_output_tokens": chat.get("max_tokens") or chat.get("max_completion_tokens"),
        "reasoning": chat.get("reasoning") or {name: value for name, value in effort.items() if value},
        "tools": [{"type": "function", "strict": False, **tool["function"]} for tool in chat.get("tools", ())],
        "tool_choice": _flat(chat.get("tool_choice"), "function"),
        "response_format": None,
        "text": {"format": form} if (form := _flat(chat.get("response_format"), "json_schema")) else None,
    }
    return {name: value for name, value in sent.items() if value not in (None, [], {})}


def as_chat(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The events of an answer, or the answer whole, as chunks of a chat; other payloads stay.

    Raises `ModelError` past the bounds of an answer.
    """
    return as_chunks(body, _Answer().chunk)


def _items(message: dict[str, Any]) -> Iterator[Json]:
    yield from map(json.loads, message.get(_REASONING, ()))
    role, content = message["role"], message.get("content")
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": content}
    elif content:
        said = content if isinstance(content, str) else list(map(_part, content))
        yield {"role": "developer" if role == "system" else role, "content": said}
    for call in message.get("tool_calls", ()):
        yield from map(json.loads, call.get(_REASONING, ()))
        made = {name: call["function"][name] for name in ("name", "arguments")}
        yield {"type": "function_call", "call_id": call["id"], **made}


def _part(part: dict[str, Any]) -> JsonObject:
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"]}


def _flat(choice: Any, name: str) -> Any:
    """A choice of a chat with the fields of its object `name` in the place of that."""
    return {"type": choice["type"], **choice.get(name, {})} if isinstance(choice, dict) else choice


@dataclass(slots=True)
class _Answer:
    """One answer. Its items come in pieces, whole at the end of each, and all again with the last event."""

    _grown: set[Json] = field(default_factory=set)
    """The places of items that have come, at least in pieces."""
    _reasoning: list[str] = field(default_factory=list)
    """Items that go back with the next one."""

    def chunk(self, payload: bytes) -> bytes:
        """The payload as a chunk of a chat; one that is no event, or an error, as it is."""
        with suppress(ValueError, TypeError, AttributeError, LookupError, RecursionError):
            event = json.loads(payload)
            match event.get("type", "completed").removeprefix("response."):
                case "error":
                    return payload
                case "completed" | "incomplete" | "failed":
                    return json.dumps(self._ended(event.get("response", event))).encode()
                case kind:
                    return json.dumps(_chunk(self._delta(kind, event, event.get("output_index")))).encode()
        return payload

    def _delta(self, kind: str, event: dict[str, Any], place: Json) -> JsonObject:
        match kind, event:
            case "output_item.added", {"item": {"type": "function_call"} as item}:
                return self._call(item, "", place)
            case "output_item.done", {"item": dict(item)}:
                return self._item(item, place)
            case "output_text.delta" | "refusal.delta", {"delta": str(text)}:
                found: JsonObject = {"content": text}
            case "output_text.done", {"text": str(text)} if place not in self._grown:
                found = {"content": text}
            case "reasoning_summary_text.delta" | "reasoning_text.delta", {"delta": str(text)}:
                found = {"summary": text}
            case "reasoning_summary_part.added", {"summary_index": int(at)} if at:
                found = {"summary": "\n\n"}
            case "function_call_arguments.delta", {"delta": str(text)}:
                found = {"tool_calls": [{"index": place, "function": {"arguments": text}}]}
            case "function_call_arguments.done", {"arguments": str(text)} if place not in self._grown:
                found = {"tool_calls": [{"index": place, "function": {"arguments": text}}]}
            case _:
                return {}
        self._grown.add(place)
        return found

    def _item(self, item: dict[str, Any], place: Json) -> JsonObject:
        """The rest of an item, which is whole now."""
        came = place in self._grown
        self._grown.add(place)
        if item["type"] == "function_call":
            return self._call(item, "" if came else item["arguments"], place)
        parts = item.get("content") or item.get("summary") or ()
        text = "" if came else "\n\n".join(part.get("text") or part.get("refusal") or "" for part in parts)
        if item["type"] == "reasoning":
            if item.get("encrypted_content"):  # the status is no field of requests
                given_back = {name: value for name, value in item.items() if name != "status" and value is not None}
                self._reasoning.append(json.dumps(given_back))
            return {"summary": text}
        return {"content": text, _REASONING: self._taken()} if item["type"] == "message" else {}

    def _call(self, item: dict[str, Any], arguments: str, place: Json) -> JsonObject:
        function = {"name": item["name"], "arguments": arguments}
        call = {"index": place, "id": item["call_id"], "function": function, _REASONING: self._taken()}
        return {"tool_calls": [call]}

    def _taken(self) -> list[str]:
        taken, self._reasoning = self._reasoning, []
        return taken

    def _ended(self, response: dict[str, Any]) -> JsonObject:
        if error := response.get("error"):
            return {"error": error}
        items = response.get("output") or []
        placed = all(isinstance(place, int) and place < len(items) for place in self._grown)
        reason = (response.get("incomplete_details") or {}).get("reason") or "stop"
        finish = "length" if reason == "max_output_tokens" else reason
        missing = [self._item(item, at) for at, item in enumerate(items) if placed and at not in self._grown]
        return _chunk(*missing, finish=finish, usage=response.get("usage"))


def _chunk(*deltas: JsonObject, finish: str | None = None, usage: JsonObject | None = None) -> JsonObject:
    return {"choices": [*({"delta": delta} for delta in deltas), {"finish_reason": finish}], "usage": usage}
