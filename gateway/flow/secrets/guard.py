"""The guard at every door: a live secret in a text becomes its reference, and the log says where it was met."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

import structlog

from gateway.domain.conversation.inbound import Inbound
from gateway.domain.conversation.model import Model, ModelEvent, Prompt, Reply, Restarted, TextDelta
from gateway.secrets.leaks import Leaks

Clean = Callable[[str], str]
"""A text without live secrets."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeakGuard:
    """Cleans texts; costs nothing while there is no secret."""

    leaks: Leaks

    def at(self, where: str) -> Clean:
        """For one door."""
        return partial(self._cleaned, where)

    def _cleaned(self, where: str, text: str) -> str:
        text, found = self.leaks.clean(text)
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
        """As the model's."""
        held = ""
        async with aclosing(self.model.stream(prompt)) as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        shown, held = self.leaks.split_growing(held + text)
                        if shown:
                            yield TextDelta(shown)
                    case Reply():
                        if held:
                            yield TextDelta(self.leaks.clean(held)[0])
                        yield self._reply(event)
                    case _:
                        held = "" if isinstance(event, Restarted) else held
                        yield event

    def _reply(self, reply: Reply) -> Reply:
        calls = tuple(replace(call, arguments=self.clean(call.arguments)) for call in reply.calls)
        return replace(reply, text=self.clean(reply.text), calls=calls)


def clean_inbound(inbound: Inbound, clean: Clean) -> Inbound:
    """What somebody wrote, without the value of a secret: the agent, the journal and memory have its name."""
    text, quoted = clean(inbound.text), clean(inbound.quoted)
    if (text, quoted) == (inbound.text, inbound.quoted):
        return inbound
    return replace(inbound, text=text, quoted=quoted)
