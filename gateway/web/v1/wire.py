"""The shapes of OpenAI's answers."""

from dataclasses import dataclass

from gateway.domain.json import Json
from gateway.store.steps import Spent


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer's identity: the same for every chunk, and for every repeat of the request."""

    id: str
    model: str
    created: int

    def whole(self, text: str, spent: Spent) -> dict[str, Json]:
        """The answer in one piece."""
        message: Json = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
        choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(spent)}

    def opening(self) -> dict[str, Json]:
        """The first chunk: who speaks."""
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def piece(self, text: str) -> dict[str, Json]:
        """More text."""
        return self._chunk({"content": text})

    def closing(self) -> dict[str, Json]:
        """The last chunk with a choice."""
        return self._chunk({}, "stop")

    def usage(self, spent: Spent) -> dict[str, Json]:
        """The chunk behind the last, for who asked for it."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(spent)}

    def _chunk(self, delta: dict[str, Json], finish_reason: str | None = None) -> dict[str, Json]:
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> dict[str, Json]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }


def model(name: str, created: int) -> dict[str, Json]:
    """One entry of the list of models."""
    return {"id": name, "object": "model", "created": created, "owned_by": "supaclaw"}


def _usage(spent: Spent) -> dict[str, Json]:
    return {
        "prompt_tokens": spent.tokens_in,
        "completion_tokens": spent.tokens_out,
        "total_tokens": spent.tokens_in + spent.tokens_out,
    }
