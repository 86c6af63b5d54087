"""The wire format of answers: chat completions, completions in the old form, and the Responses API."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from gateway.domain.conversation.model import ToolCall
from gateway.domain.ids import InboxId
from gateway.domain.json import Json, JsonObject
from gateway.store.work.steps import ModelUse
from gateway.web.http.errors import Refused
from gateway.web.live.sse import Frame, to_json
from gateway.web.v1.turn import TurnAnswer


@dataclass(frozen=True, slots=True)
class Completion:
    """A chat completion; its id is the same in every chunk, and for every repeat of the request."""

    kind: ClassVar[str] = "chatcmpl"
    model: str
    arrival: InboxId | None
    """The message; None for an answer by rule."""
    created: int
    include_usage: bool = False

    def whole(self, answer: TurnAnswer) -> JsonObject:
        """The answer in one piece."""
        calls: dict[str, Json] = {"tool_calls": [_call(call) for call in answer.calls]} if answer.calls else {}
        text = answer.text or None if answer.calls else answer.text
        message: Json = {"role": "assistant", "content": text, "refusal": None, "annotations": [], **calls}
        choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(answer)}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage(answer.spent)}

    def opening(self) -> Iterator[Frame]:
        """The first chunk, with the role."""
        yield self._chunk({"role": "assistant", "content": "", "refusal": None})

    def piece(self, text: str) -> Iterator[Frame]:
        """A chunk of text."""
        yield self._chunk({"content": text})

    def closing(self, answer: TurnAnswer) -> Iterator[Frame]:
        """The calls, the last chunk with a choice, and the usage if the request included it."""
        for index, call in enumerate(answer.calls):
            yield self._chunk({"tool_calls": [{"index": index, **_call(call)}]})
        yield self._chunk({}, _reason(answer))
        if self.include_usage:
            head = self._head("chat.completion.chunk")
            yield Frame(to_json({**head, "choices": [], "usage": usage(answer.spent)}))
        yield Frame("[DONE]")

    def failed(self, refused: Refused) -> Iterator[Frame]:
        """The error, in the format that clients expect in a stream."""
        yield Frame(to_json(refused.body()))

    def _chunk(self, delta: dict[str, Json], finish_reason: str | None = None) -> Frame:
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return Frame(to_json({**self._head("chat.completion.chunk"), "choices": [choice]}))

    def _head(self, kind: str) -> dict[str, Json]:
        id = f"{self.kind}-{self.arrival or 0}"
        return {"id": id, "object": kind, "created": self.created, "model": self.model, "system_fingerprint": None}


class TextCompletion(Completion):
    """A completion in the older format; its chunks have the shape of the whole."""

    kind = "cmpl"

    def whole(self, answer: TurnAnswer) -> JsonObject:
        """The answer in one piece."""
        return {**self._choice_of(answer.text, answer.finish), "usage": usage(answer.spent)}

    def _chunk(self, delta: dict[str, Json], finish_reason: str | None = None) -> Frame:
        return Frame(to_json(self._choice_of(delta.get("content", ""), finish_reason)))

    def _choice_of(self, text: Json, finish_reason: str | None) -> dict[str, Json]:
        choice: Json = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head("text_completion"), "choices": [choice]}


def model_entry(name: str, created: int) -> dict[str, Json]:
    """One entry of the list of models."""
    return {"id": name, "object": "model", "created": created, "owned_by": "supaclaw"}


def usage(spent: ModelUse) -> dict[str, Json]:
    """The tokens of an answer."""
    total = spent.tokens_in + spent.tokens_out
    return {"prompt_tokens": spent.tokens_in, "completion_tokens": spent.tokens_out, "total_tokens": total}


def _call(call: ToolCall) -> dict[str, Json]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}


def _reason(answer: TurnAnswer) -> str:
    return "tool_calls" if answer.calls else answer.finish


_FIXED: dict[str, Json] = {
    **dict.fromkeys(("error", "incomplete_details", "instructions", "max_output_tokens", "temperature", "top_p")),
    "metadata": {},
    "object": "response",
    "parallel_tool_calls": True,
    "store": True,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "truncation": "disabled",
}
"""Fields that are the same in every response."""


@dataclass(slots=True)
class ResponseObject:
    """A response of the Responses API; counts the events of its stream."""

    model: str
    arrival: InboxId | None
    created: int
    previous: str | None = None
    _sequence: int = field(default=0, init=False)
    _began: bool = field(default=False, init=False)

    def whole(self, answer: TurnAnswer) -> JsonObject:
        """The answer in one piece."""
        response = self._response("completed", self._items(answer), answer)
        if answer.finish != "length":
            return response
        return {**response, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}

    def opening(self) -> Iterator[Frame]:
        """The empty response."""
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=self._response("in_progress", []))

    def piece(self, text: str) -> Iterator[Frame]:
        """A chunk of text."""
        if not self._began:
            self._began = True
            yield self._event("response.output_item.added", output_index=0, item=self._message(None))
            yield self._text_event("response.content_part.added", part=_part(""))
        yield self._text_event("response.output_text.delta", delta=text, logprobs=[])

    def closing(self, answer: TurnAnswer) -> Iterator[Frame]:
        """The end of the text, the calls, and the whole response."""
        if not self._began and not answer.calls:
            yield from self.piece("")
        if self._began:
            yield self._text_event("response.output_text.done", text=answer.text, logprobs=[])
            yield self._text_event("response.content_part.done", part=_part(answer.text))
            yield self._event("response.output_item.done", output_index=0, item=self._message(answer.text))
        for place, call in enumerate(answer.calls):
            yield from self._called(call, place)
        whole = self.whole(answer)
        yield self._event(f"response.{whole['status']}", response=whole)

    def failed(self, refused: Refused) -> Iterator[Frame]:
        """The response with its error."""
        error: Json = {"code": refused.code or "server_error", "message": refused.detail}
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

    def _items(self, answer: TurnAnswer) -> list[Json]:
        calls: list[Json] = [self._call(call, place) for place, call in enumerate(answer.calls)]
        return [self._message(answer.text), *calls] if answer.text or not calls else calls

    def _message(self, text: str | None) -> JsonObject:
        status, content = ("in_progress", []) if text is None else ("completed", [_part(text)])
        head: dict[str, Json] = {"id": self._id("msg"), "type": "message", "role": "assistant"}
        return {**head, "status": status, "content": content}

    def _call(self, call: ToolCall, place: int) -> dict[str, Json]:
        head: dict[str, Json] = {"id": f"{self._id('fc')}_{place}", "type": "function_call", "status": "completed"}
        return {**head, "call_id": call.id, "name": call.name, "arguments": call.arguments or "{}"}

    def _text_event(self, name: str, **fields: Json) -> Frame:
        return self._event(name, item_id=self._id("msg"), output_index=0, content_index=0, **fields)

    def _event(self, name: str, /, **fields: Json) -> Frame:
        number, self._sequence = self._sequence, self._sequence + 1
        return Frame(to_json({"type": name, "sequence_number": number, **fields}), event=name)

    def _id(self, kind: str) -> str:
        return f"{kind}_{self.arrival or 0}"

    def _response(self, status: str, output: list[Json], answer: TurnAnswer | None = None) -> dict[str, Json]:
        head: dict[str, Json] = {"id": self._id("resp"), "created_at": self.created, "model": self.model}
        done: dict[str, Json] = {"status": status, "output": output, "usage": _usage(answer) if answer else None}
        return {**_FIXED, **head, **done, "previous_response_id": self.previous}


def _part(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(answer: TurnAnswer) -> JsonObject:
    spent = answer.spent
    return {
        "input_tokens": spent.tokens_in,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": spent.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": spent.tokens_in + spent.tokens_out,
    }
