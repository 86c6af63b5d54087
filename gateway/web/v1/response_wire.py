"""The shapes of the Responses API: a response and its items, and the events of a stream."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.domain.conversation.model import ToolCall
from gateway.domain.json import Json, JsonObject
from gateway.web.http.errors import Refused
from gateway.web.live.sse import Frame, to_json
from gateway.web.v1.turn import Spoken

_UNSET = ("error", "incomplete_details", "instructions", "max_output_tokens", "temperature", "top_p")
_SET: dict[str, Json] = {
    "metadata": {},
    "parallel_tool_calls": True,
    "store": True,
    "text": {"format": {"type": "text"}},
}
_FIXED: dict[str, Json] = {
    **dict.fromkeys(_UNSET),
    **_SET,
    "tool_choice": "auto",
    "tools": [],
    "truncation": "disabled",
}
"""What every response says, whatever was asked."""


def message_id(response: str) -> str:
    """The id of a response's text."""
    return f"msg_{response.removeprefix('resp_')}"


def call_item_id(response: str, place: int) -> str:
    """The id of a response's call."""
    return f"fc_{response.removeprefix('resp_')}_{place}"


@dataclass(slots=True)
class ResponseObject:
    """A `Shape`; it counts the events of its stream."""

    id: str
    model: str
    created: int
    previous: str | None = None
    _sequence: int = field(default=0, init=False)
    _began: bool = field(default=False, init=False)

    def whole(self, spoken: Spoken) -> JsonObject:
        """The answer in one piece."""
        return self._response("completed", self._items(spoken), spoken)

    def opening(self) -> Iterator[Frame]:
        """The response, without anything in it."""
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=self._response("in_progress", []))

    def piece(self, text: str) -> Iterator[Frame]:
        """More text."""
        if not self._began:
            self._began = True
            yield self._event("response.output_item.added", output_index=0, item=self._message(None))
            yield self._text_event("response.content_part.added", part=_part(""))
        yield self._text_event("response.output_text.delta", delta=text, logprobs=[])

    def closing(self, spoken: Spoken) -> Iterator[Frame]:
        """The end of the text, the calls, and the whole."""
        if not self._began and not spoken.calls:
            yield from self.piece("")
        if self._began:
            yield self._text_event("response.output_text.done", text=spoken.text, logprobs=[])
            yield self._text_event("response.content_part.done", part=_part(spoken.text))
            yield self._event("response.output_item.done", output_index=0, item=self._message(spoken.text))
        for place, call in enumerate(spoken.calls):
            yield from self._called(call, place)
        yield self._event("response.completed", response=self.whole(spoken))

    def failed(self, refused: Refused) -> Iterator[Frame]:
        """The response, with why it failed."""
        error: Json = {"code": refused.code or "server_error", "message": refused.message}
        yield self._event("response.failed", response={**self._response("failed", []), "error": error})

    def _called(self, call: ToolCall, place: int) -> Iterator[Frame]:
        at, item = place + self._began, self._call(call, place)
        arguments, id = str(item["arguments"]), item["id"]
        begun = {**item, "arguments": "", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=at, item=begun)
        yield self._event("response.function_call_arguments.delta", item_id=id, output_index=at, delta=arguments)
        yield self._event(
            "response.function_call_arguments.done", item_id=id, output_index=at, arguments=arguments, name=call.name
        )
        yield self._event("response.output_item.done", output_index=at, item=item)

    def _items(self, spoken: Spoken) -> list[Json]:
        calls: list[Json] = [self._call(call, place) for place, call in enumerate(spoken.calls)]
        return [self._message(spoken.text), *calls] if spoken.text or not calls else calls

    def _message(self, text: str | None) -> JsonObject:
        status, content = ("in_progress", []) if text is None else ("completed", [_part(text)])
        head: dict[str, Json] = {"id": message_id(self.id), "type": "message", "role": "assistant"}
        return {**head, "status": status, "content": content}

    def _call(self, call: ToolCall, place: int) -> dict[str, Json]:
        head: dict[str, Json] = {"id": call_item_id(self.id, place), "type": "function_call", "status": "completed"}
        return {**head, "call_id": call.id, "name": call.name, "arguments": call.arguments or "{}"}

    def _text_event(self, name: str, **fields: Json) -> Frame:
        return self._event(name, item_id=message_id(self.id), output_index=0, content_index=0, **fields)

    def _event(self, name: str, /, **fields: Json) -> Frame:
        number, self._sequence = self._sequence, self._sequence + 1
        return Frame(to_json({"type": name, "sequence_number": number, **fields}), event=name)

    def _response(self, status: str, output: list[Json], spoken: Spoken | None = None) -> dict[str, Json]:
        head: dict[str, Json] = {"id": self.id, "object": "response", "created_at": self.created, "model": self.model}
        done: dict[str, Json] = {"status": status, "output": output, "usage": _usage(spoken) if spoken else None}
        return {**_FIXED, **head, **done, "previous_response_id": self.previous}


def _part(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(spoken: Spoken) -> JsonObject:
    spent = spoken.spent
    return {
        "input_tokens": spent.tokens_in,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": spent.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": spent.tokens_in + spent.tokens_out,
    }
