"""The shapes of OpenAI's answers."""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.domain.conversation.model import ToolCall
from gateway.domain.json import Json, JsonObject
from gateway.store.engine.steps import Spent
from gateway.web.http.errors import Refused
from gateway.web.live.sse import Frame, to_json
from gateway.web.v1.turn import Spoken


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer's identity: the same for every chunk, and for every repeat of the request."""

    id: str
    model: str
    created: int
    include_usage: bool = False

    def whole(self, spoken: Spoken) -> JsonObject:
        """The answer in one piece."""
        calls: dict[str, Json] = {"tool_calls": [_call(call) for call in spoken.calls]} if spoken.calls else {}
        text = spoken.text or None if spoken.calls else spoken.text
        message: Json = {"role": "assistant", "content": text, "refusal": None, "annotations": [], **calls}
        choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(spoken)}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage(spoken.spent)}

    def opening(self) -> Iterator[Frame]:
        """The first chunk: who speaks."""
        yield self._chunk({"role": "assistant", "content": "", "refusal": None})

    def piece(self, text: str) -> Iterator[Frame]:
        """More text."""
        yield self._chunk({"content": text})

    def closing(self, spoken: Spoken) -> Iterator[Frame]:
        """The calls, the last chunk with a choice, and the usage for who asked for it."""
        for index, call in enumerate(spoken.calls):
            yield self._chunk({"tool_calls": [{"index": index, **_call(call)}]})
        yield self._chunk({}, _reason(spoken))
        if self.include_usage:
            head = self._head("chat.completion.chunk")
            yield Frame(to_json({**head, "choices": [], "usage": usage(spoken.spent)}))
        yield Frame("[DONE]")

    def failed(self, refused: Refused) -> Iterator[Frame]:
        """The error, as clients look for it in a stream."""
        yield Frame(to_json(refused.body()))

    def _chunk(self, delta: dict[str, Json], finish_reason: str | None = None) -> Frame:
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return Frame(to_json({**self._head("chat.completion.chunk"), "choices": [choice]}))

    def _head(self, kind: str) -> dict[str, Json]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }


class TextCompletion(Completion):
    """The thin old form, whose chunks look like the whole."""

    def whole(self, spoken: Spoken) -> JsonObject:
        """The answer in one piece."""
        return {**self._told(spoken.text, "stop"), "usage": usage(spoken.spent)}

    def _chunk(self, delta: dict[str, Json], finish_reason: str | None = None) -> Frame:
        return Frame(to_json(self._told(delta.get("content", ""), finish_reason)))

    def _told(self, text: Json, finish_reason: str | None) -> dict[str, Json]:
        choice: Json = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head("text_completion"), "choices": [choice]}


def model(name: str, created: int) -> dict[str, Json]:
    """One entry of the list of models."""
    return {"id": name, "object": "model", "created": created, "owned_by": "supaclaw"}


def usage(spent: Spent) -> dict[str, Json]:
    """What an answer took."""
    return {
        "prompt_tokens": spent.tokens_in,
        "completion_tokens": spent.tokens_out,
        "total_tokens": spent.tokens_in + spent.tokens_out,
    }


def _call(call: ToolCall) -> dict[str, Json]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}


def _reason(spoken: Spoken) -> str:
    return "tool_calls" if spoken.calls else "stop"
