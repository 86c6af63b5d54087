"""Reads one answer in the OpenAI format, from bytes to events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from pydantic import ValidationError

from gateway.domain.model import TextDelta
from gateway.llm.chunks import Answer, Chunk
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import KeepAlive, ProviderEvent
from gateway.llm.refusal import refusal_in
from gateway.llm.sse import DataLines

_DRAIN_S = 0.25


async def read_answer(body: AsyncIterator[bytes]) -> AsyncGenerator[ProviderEvent, None]:
    """Yield an event per chunk, then the reply; raises `ModelError` if the answer is garbled, failed or cut off."""
    answer, lines, ended = Answer(), DataLines(), False
    async for data in body:
        text = ""
        for payload in lines.feed(data):
            ended = ended or payload == b"[DONE]"
            text += "" if ended else answer.add(parse(payload))
        yield TextDelta(text) if text else KeepAlive()
        if ended:
            await _drain(body)
            break
    if not ended and answer.finish is None:
        raise ModelError(ErrorKind.NETWORK, "the answer was cut off")
    yield answer.reply()


async def read_single(body: AsyncIterator[bytes]) -> AsyncGenerator[ProviderEvent, None]:
    """Read an answer sent in one piece: some servers never stream, and some send errors with status 200."""
    answer, data = Answer(), b""
    async for piece in body:
        data += piece
        yield KeepAlive()
    if text := answer.add(parse(data)):
        yield TextDelta(text)
    yield answer.reply()


def parse(payload: bytes) -> Chunk:
    """Parse one event of the stream; raises `ModelError` if the event is an error."""
    try:
        chunk = Chunk.model_validate_json(payload)
    except ValidationError as error:
        raise garbled(payload) from error
    if chunk.error is not None:
        raise refusal_in(payload).as_error()
    return chunk


def garbled(body: bytes) -> ModelError:
    """The error for an answer that cannot be parsed; quotes its beginning."""
    return ModelError(ErrorKind.SERVER, f"garbled answer: {body[:80].decode(errors='replace')}")


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read to the end, so that the connection returns to the pool; give up on a body that does not end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in body:
                pass
