"""The leak guard: a live secret in a text is replaced by its reference, and the log says where."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

import structlog

from gateway.domain.conversation.inbound import Inbound
from gateway.domain.conversation.model import Model, ModelEvent, Prompt, Reply, Restarted, TextDelta, ThinkingDelta
from gateway.secrets.leaks import Leaks

Clean = Callable[[str], str]
"""Removes live secrets from a text."""

log = structlog.get_logger(__name__)


def cleaned(leaks: Leaks, where: str, text: str) -> str:
    """The text without live secrets; the log names the place. Costs nothing without secrets."""
    text, found = leaks.clean(text)
    if found:
        log.warning("secrets.leak_stopped", where=where, secrets=sorted(found))
    return text


@dataclass(frozen=True, slots=True)
class CleanModel:
    """A model whose replies, calls and deltas hold no live secret.

    A delta waits for the next one only as far as its end may be the beginning of a value.
    """

    model: Model
    clean: Clean
    leaks: Leaks

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Yield the model's events, cleaned."""
        held = thought = ""
        async with aclosing(self.model.stream(prompt)) as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        shown, held = self.leaks.split_growing(held + text)
                        if shown:
                            yield TextDelta(shown)
                    case ThinkingDelta(text):
                        shown, thought = self.leaks.split_growing(thought + text)
                        if shown:
                            yield ThinkingDelta(shown)
                    case Reply():
                        if thought:
                            yield ThinkingDelta(self.leaks.clean(thought)[0])
                        if held:
                            yield TextDelta(self.leaks.clean(held)[0])
                        yield self._reply(event)
                    case _:
                        held, thought = ("", "") if isinstance(event, Restarted) else (held, thought)
                        yield event

    def _reply(self, reply: Reply) -> Reply:
        calls = tuple(replace(call, arguments=self.clean(call.arguments)) for call in reply.calls)
        fields = reply.fields  # signed as they are: with a secret in them, they are of no use
        leak = fields and any(self.clean(text) != text for text in (fields.message, *fields.calls))
        thought = reply.thought and replace(reply.thought, text=self.clean(reply.thought.text))
        return replace(
            reply, text=self.clean(reply.text), calls=calls, fields=None if leak else fields, thought=thought
        )


def clean_inbound(inbound: Inbound, clean: Clean) -> Inbound:
    """The message with the names of secrets in place of their values."""
    texts = (inbound.text, inbound.quoted, inbound.added)
    if (cleaned := tuple(map(clean, texts))) == texts:
        return inbound
    text, quoted, added = cleaned
    return replace(inbound, text=text, quoted=quoted, added=added)
