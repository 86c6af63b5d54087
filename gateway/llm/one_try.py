"""One attempt at one model: a usable answer, or a `ModelError`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from gateway.domain.model import Prompt, TextDelta
from gateway.domain.settings import Params
from gateway.llm.bounds import endless
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import KeepAlive, Provider, ProviderEvent, ProviderReply

_ALIVE = 2.5
_WHOLE = 30.0
"""An hour, by the usual silence of two minutes."""


async def one_try(
    provider: Provider, model: str, prompt: Prompt, params: Params, max_silence: float
) -> AsyncGenerator[TextDelta | ProviderReply, None]:
    """Yield deltas, then the reply.

    Raises `ModelError` if nothing at all arrives for `max_silence` seconds, no part of an answer for `_ALIVE` times as
    long, or no end of it for `_WHOLE` times as long.
    """
    await provider.warm()
    now = asyncio.get_running_loop().time
    alive, whole = now() + _ALIVE * max_silence, now() + _WHOLE * max_silence
    async with aclosing(provider.stream(model, prompt, params)) as events:
        while (event := await _next(events, max_silence, alive, whole)) is not None:
            if not isinstance(event, KeepAlive):
                alive = now() + _ALIVE * max_silence
            if isinstance(event, ProviderReply):
                yield _require_content(event, params)
            elif isinstance(event, TextDelta):
                yield event


async def _next(
    events: AsyncGenerator[ProviderEvent, None], max_silence: float, alive: float, whole: float
) -> ProviderEvent | None:
    """The next event, before the first of these ends."""
    silent = asyncio.get_running_loop().time() + max_silence
    try:
        async with asyncio.timeout_at(min(silent, alive, whole)):
            return await anext(events, None)
    except TimeoutError as error:
        if whole <= min(silent, alive):
            raise endless(f"it took more than {_WHOLE * max_silence:g} s") from error
        told = "nothing arrived for" if silent < alive else "nothing but keep-alives arrived for"
        seconds = max_silence * (1 if silent < alive else _ALIVE)
        raise ModelError(ErrorKind.SILENCE, f"{told} {seconds:g} s") from error


def _require_content(reply: ProviderReply, params: Params) -> ProviderReply:
    if reply.text.strip() or reply.calls:
        return reply
    if reply.finish == "length":
        limit = f"its whole limit of {params.max_output_tokens} tokens (models.params.max_output_tokens)"
        raise ModelError(ErrorKind.BAD_REQUEST, f"the model used {limit} without an answer")
    if reply.finish == "content_filter":
        raise ModelError(ErrorKind.BAD_REQUEST, "the provider's content filter held the answer back")
    raise ModelError(ErrorKind.SERVER, f"empty answer (finish reason {reply.finish})")
