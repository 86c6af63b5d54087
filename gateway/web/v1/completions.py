"""The thin old form: a prompt that is one message of its own conversation, and its answer as a text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.domain.json import Json, JsonObject
from gateway.web.errors import Refused
from gateway.web.sse import Frame, to_json
from gateway.web.v1.request import Asked, fields_of, flag, invalid
from gateway.web.v1.turn import Spoken
from gateway.web.v1.wire import usage


def parse(body: bytes, models: Sequence[str]) -> Asked:
    """Raises `Refused`, naming the field."""
    fields = fields_of(body, models, but="prompt")
    match fields.get("prompt"):
        case str(prompt) | [str(prompt)] if prompt.strip():
            return Asked(str(fields["model"]), prompt, stream=flag(fields.get("stream"), "stream"))
        case _:
            raise invalid("prompt", "'prompt' must be one text.")


@dataclass(frozen=True, slots=True)
class TextCompletion:
    """A `Shape`; a chunk looks like the whole."""

    id: str
    model: str
    created: int

    def whole(self, spoken: Spoken) -> JsonObject:
        """The answer in one piece."""
        return {**self._told(spoken.text, "stop"), "usage": usage(spoken.spent)}

    def opening(self) -> Iterator[Frame]:
        """Nothing."""
        yield from ()

    def piece(self, text: str) -> Iterator[Frame]:
        """More text."""
        yield Frame(to_json(self._told(text, None)))

    def closing(self, spoken: Spoken) -> Iterator[Frame]:
        """The last chunk, with the usage."""
        yield Frame(to_json({**self._told("", "stop"), "usage": usage(spoken.spent)}))
        yield Frame("[DONE]")

    def failed(self, refused: Refused) -> Iterator[Frame]:
        """The error, as clients look for it in a stream."""
        yield Frame(to_json(refused.body()))

    def _told(self, text: str, finish_reason: str | None) -> dict[str, Json]:
        choice: Json = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
        head: dict[str, Json] = {"id": self.id, "object": "text_completion", "created": self.created}
        return {**head, "model": self.model, "choices": [choice]}
