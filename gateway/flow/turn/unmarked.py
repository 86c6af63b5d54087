"""A model whose answers hold no mark of the gateway, whole or while they are written."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from gateway.domain.conversation.model import Model, ModelEvent, Prompt, Reply, Restarted, TextDelta
from gateway.domain.text.copied_marks import CopiedMarks, without_copied_marks


@dataclass(frozen=True, slots=True)
class UnmarkedModel:
    """Takes copied marks out; with `silence` also an answer that means none, for chats of people."""

    model: Model
    silence: bool

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Yield the model's events, without marks."""
        marks = CopiedMarks(self.silence)
        async with aclosing(self.model.stream(prompt)) as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        if shown := marks.add(text):
                            yield TextDelta(shown)
                    case Reply():
                        if left := marks.end():
                            yield TextDelta(left)
                        yield replace(event, text=without_copied_marks(event.text, silence=self.silence))
                    case _:
                        marks = CopiedMarks(self.silence) if isinstance(event, Restarted) else marks
                        yield event
