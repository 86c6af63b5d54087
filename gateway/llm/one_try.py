"""One try of one model: an answer that is worth having, or a `ModelError`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from gateway.domain.model import Prompt, TextDelta
from gateway.domain.settings import Params
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import Provider, ProviderEvent, ProviderReply


async def one_try(
    provider: Provider, model: str, prompt: Prompt, params: Params, silence: float
) -> AsyncGenerator[TextDelta | ProviderReply, None]:
    """Deltas, then the reply. `silence` is the longest time, in seconds, in which nothing at all may arrive."""
    await provider.warm()
    async with aclosing(provider.stream(model, prompt, params)) as events:
        while (event := await _next(events, silence)) is not None:
            if isinstance(event, ProviderReply):
                yield _worth_having(event, params)
            elif isinstance(event, TextDelta):
                yield event


async def _next(events: AsyncGenerator[ProviderEvent, None], silence: float) -> ProviderEvent | None:
    try:
        async with asyncio.timeout(silence):
            return await anext(events, None)
    except TimeoutError as error:
        raise ModelError(ErrorKind.SILENCE, f"nothing arrived for {silence:g} s") from error


def _worth_having(reply: ProviderReply, params: Params) -> ProviderReply:
    if reply.text.strip() or reply.calls:
        return reply
    if reply.finish == "length":
        limit = f"its whole limit of {params.max_output_tokens} tokens (models.params.max_output_tokens)"
        raise ModelError(ErrorKind.BAD_REQUEST, f"the model used {limit} without an answer")
    if reply.finish == "content_filter":
        raise ModelError(ErrorKind.BAD_REQUEST, "the provider's content filter held the answer back")
    raise ModelError(ErrorKind.SERVER, f"empty answer (finish reason {reply.finish})")
