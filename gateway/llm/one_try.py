"""One attempt at one model: a usable answer, or a `ModelError`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from gateway.domain.model import Prompt, TextDelta
from gateway.domain.settings import Params
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import Provider, ProviderEvent, ProviderReply


async def one_try(
    provider: Provider, model: str, prompt: Prompt, params: Params, max_silence: float
) -> AsyncGenerator[TextDelta | ProviderReply, None]:
    """Yield deltas, then the reply. Raises `ModelError` if nothing at all arrives for `max_silence` seconds."""
    await provider.warm()
    async with aclosing(provider.stream(model, prompt, params)) as events:
        while (event := await _next(events, max_silence)) is not None:
            if isinstance(event, ProviderReply):
                yield _require_content(event, params)
            elif isinstance(event, TextDelta):
                yield event


async def _next(events: AsyncGenerator[ProviderEvent, None], max_silence: float) -> ProviderEvent | None:
    try:
        async with asyncio.timeout(max_silence):
            return await anext(events, None)
    except TimeoutError as error:
        raise ModelError(ErrorKind.SILENCE, f"nothing arrived for {max_silence:g} s") from error


def _require_content(reply: ProviderReply, params: Params) -> ProviderReply:
    if reply.text.strip() or reply.calls:
        return reply
    if reply.finish == "length":
        limit = f"its whole limit of {params.max_output_tokens} tokens (models.params.max_output_tokens)"
        raise ModelError(ErrorKind.BAD_REQUEST, f"the model used {limit} without an answer")
    if reply.finish == "content_filter":
        raise ModelError(ErrorKind.BAD_REQUEST, "the provider's content filter held the answer back")
    raise ModelError(ErrorKind.SERVER, f"empty answer (finish reason {reply.finish})")
