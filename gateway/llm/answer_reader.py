"""Reads one answer in the OpenAI format, from bytes to events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from pydantic import ValidationError

from gateway.domain.model import TextDelta
from gateway.llm.chunks import Answer, Chunk
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import Alive, ProviderEvent
from gateway.llm.refusal import refusal_in
from gateway.llm.sse import DataLines

_LAST_WORDS_S = 0.25


async def read_answer(body: AsyncIterator[bytes]) -> AsyncGenerator[ProviderEvent, None]:
    """An event for whatever arrives, then the reply; raises `ModelError` for garbled, failed and cut-off answers."""
    answer, lines, ended = Answer(), DataLines(), False
    async for data in body:
        text = ""
        for payload in lines.feed(data):
            ended = ended or payload == b"[DONE]"
            text += "" if ended else answer.add(parse(payload))
        yield TextDelta(text) if text else Alive()
        if ended:
            await _read_to_end(body)
            break
    if not ended and answer.finish is None:
        raise ModelError(ErrorKind.NETWORK, "the answer was cut off")
    yield answer.reply()


async def read_whole(body: AsyncIterator[bytes]) -> AsyncGenerator[ProviderEvent, None]:
    """The same for an answer in one piece: some servers never stream, and some tell an error with a status of 200."""
    answer, data = Answer(), b""
    async for piece in body:
        data += piece
        yield Alive()
    if text := answer.add(parse(data)):
        yield TextDelta(text)
    yield answer.reply()


def parse(payload: bytes) -> Chunk:
    """One event of the stream; an error told inside the stream is raised."""
    try:
        chunk = Chunk.model_validate_json(payload)
    except ValidationError as error:
        raise garbled(payload) from error
    if chunk.error is not None:
        raise refusal_in(payload).as_error()
    return chunk


def garbled(body: bytes) -> ModelError:
    """The error for an answer that nobody can read, with its beginning."""
    return ModelError(ErrorKind.SERVER, f"garbled answer: {body[:80].decode(errors='replace')}")


async def _read_to_end(body: AsyncIterator[bytes]) -> None:
    """Only a body that was read to its end gives the connection back; one that never ends is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_S):
            async for _ in body:
                pass
