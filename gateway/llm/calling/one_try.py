"""One attempt at one model: a usable answer, or a `ModelError`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from gateway.domain.conversation.model import Prompt, TextDelta
from gateway.domain.settings import Params
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import KeepAlive, Provider, ProviderEvent, ProviderReply

_ALIVE = 2.5
"""How much longer a connection may be alive without an answer than silent."""


async def one_try(
    provider: Provider, model: str, prompt: Prompt, params: Params, max_silence: float
) -> AsyncGenerator[TextDelta | ProviderReply, None]:
    """Yield deltas, then the reply.

    Raises `ModelError` if nothing at all arrives for `max_silence` seconds, or no part of an answer for `_ALIVE` times
    as long.
    """
    await provider.warm()
    now = asyncio.get_running_loop().time
    async with aclosing(provider.stream(model, prompt, params)) as events:
        grown = now()
        while (event := await _next(events, max_silence, grown)) is not None:
            if not isinstance(event, KeepAlive):
                grown = now()
            if isinstance(event, ProviderReply):
                yield _require_content(event, params)
            elif isinstance(event, TextDelta) and event.text:
                yield event


async def _next(events: AsyncGenerator[ProviderEvent, None], max_silence: float, grown: float) -> ProviderEvent | None:
    """The next event; the answer has not grown since `grown`."""
    silent, idle = asyncio.get_running_loop().time() + max_silence, grown + _ALIVE * max_silence
    try:
        async with asyncio.timeout_at(min(silent, idle)):
            return await anext(events, None)
    except TimeoutError as error:
        told = f"nothing arrived for {max_silence:g} s"
        told = told if silent < idle else f"nothing but keep-alives arrived for {_ALIVE * max_silence:g} s"
        raise ModelError(ErrorKind.SILENCE, told) from error


def _require_content(reply: ProviderReply, params: Params) -> ProviderReply:
    if reply.text.strip() or reply.calls:
        return reply
    if reply.finish == "length":
        limit = f"its whole limit of {params.max_output_tokens} tokens (models.params.max_output_tokens)"
        raise ModelError(ErrorKind.BAD_REQUEST, f"the model used {limit} without an answer")
    if reply.finish == "content_filter":
        raise ModelError(ErrorKind.BAD_REQUEST, "the provider's content filter held the answer back")
    raise ModelError(ErrorKind.SERVER, f"empty answer (finish reason {reply.finish})")
