"""Reads one answer in the OpenAI format, from the bytes of server-sent events to our own events."""

import asyncio
import json
import re
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from math import inf

from pydantic import ValidationError

from gateway.domain.conversation.model import TextDelta, ThinkingDelta
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.protocol.bounds import MAX_CALLS, MAX_LINE_BYTES, bounded, check_part_count, endless
from gateway.llm.protocol.chunks import AnswerBuilder, Chunk, replace_odd_values
from gateway.llm.protocol.refusal import no_answer, parse_refusal
from gateway.llm.protocol.thinking import ThinkingFilter
from gateway.llm.protocol.unknown_fields import UnknownFields
from gateway.llm.provider import KeepAlive, ProviderEvents, ThinkingEnded

_DRAIN_S = 0.25
_AFTER_FINISH_S = 5.0
_AFTER_FINISH_BYTES = 2**16
_DONE = re.compile(rb'"?\[?(?:done|end)\]?"?|\{"done": ?true\}', re.IGNORECASE)
_IDLE = re.compile(rb":.*|null|\"?(?:ping|keep-?alive|heartbeat)\"?|", re.IGNORECASE)
"""Payloads that only keep the connection alive."""
_LOST_END = re.compile(r"(?<=\})\s*(?:data:\s*)?(?=\{)")
_OTHER_FIELDS = (b":", b"event:", b"id:", b"retry:")


async def read_answer(
    body: AsyncIterator[bytes], source: str, thinking: ThinkingFilter | None = None
) -> ProviderEvents:
    """Yield an event per chunk, then the reply, with the unknown fields of its `source`.

    Raises `ModelError` if the answer is garbled, failed or cut off.
    """
    answer = AnswerBuilder(thinking or ThinkingFilter(), unknown=UnknownFields(source))
    lines = DataLines()
    async with aclosing(_until_settled(bounded(body), answer)) as pieces:
        async for data in pieces:
            text, size = "", answer.size
            for payload in lines.feed(data):
                if _DONE.fullmatch(payload):
                    answer.finish, answer.done = answer.finish or "stop", True
                added = "" if answer.done else answer.add(parse(payload))
                if answer.thinking.dropped:
                    answer.thinking.dropped, text = False, ""
                    yield ThinkingEnded()
                text += added
            if thought := answer.take_thought():
                yield ThinkingDelta(thought)
            yield TextDelta(text) if answer.size > size else KeepAlive()
    if answer.finish is None:
        raise ModelError(ErrorKind.NETWORK, "the answer was cut off")
    if rest := answer.end():
        yield TextDelta(rest)
    yield answer.reply()


async def in_one_line(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """An answer sent in one piece as a stream: some servers never stream, and some send errors with status 200."""
    data = bytearray()
    async for piece in bounded(body, MAX_LINE_BYTES):
        data += piece
        yield b"\n"
    whole = data.removeprefix(BOM_UTF8).strip()
    is_stream = whole.startswith((b"data:", b"event:", b":"))
    yield bytes(whole) if is_stream else b"data: %b\ndata: [DONE]\n" % b" ".join(whole.splitlines())


async def as_chunks(body: AsyncIterator[bytes], chunk: Callable[[bytes], bytes]) -> AsyncGenerator[bytes, None]:
    """The payloads of another protocol, each as what `chunk` makes of it; raises `ModelError` past a bound."""
    lines = DataLines()
    async with aclosing(bounded(body)) as pieces:
        async for piece in pieces:
            for payload in lines.feed(piece):
                yield b"data: " + chunk(payload) + b"\n"
    for payload in lines.feed(b"\n\n"):  # the last event may lack its end
        yield b"data: " + chunk(payload) + b"\n"


def parse(payload: bytes) -> Chunk:
    """Parse one event of the stream; raises `ModelError` if the event is an error, or huge."""
    check_part_count(payload)
    try:
        chunk = Chunk.model_validate_json(payload)
    except ValidationError as error:
        chunk = _tolerated(payload, error)
    failed = chunk.error or any(choice.error for choice in chunk.choices or ())
    if failed or (chunk.says and (chunk.choices is None or (not chunk.choices and isinstance(chunk.says, str | int)))):
        raise parse_refusal(payload)
    return chunk


def _tolerated(payload: bytes, error: ValidationError) -> Chunk:
    faults = error.errors(include_input=False, include_url=False)
    if any(fault["type"] == "too_long" for fault in faults):
        raise endless(f"a list of more than {MAX_CALLS} items") from error
    with suppress(ValueError, TypeError, LookupError, RecursionError):
        text = payload.decode(errors="replace").removesuffix("data: [DONE]")
        if faults[0]["type"] == "json_invalid":  # it may be several events without the ends of their lines
            events = json.loads(f"[{_LOST_END.sub(',', text)}]")
            text = json.dumps({"choices": [choice for event in events for choice in event["choices"]]})
        data = json.loads(text)
        replace_odd_values(data, [fault["loc"] for fault in faults])
        return Chunk.model_validate(data)
    raise no_answer(payload) from error


async def _until_settled(body: AsyncGenerator[bytes, None], answer: AnswerBuilder) -> AsyncGenerator[bytes, None]:
    """The body; once the answer has finished, at most 64 KB and 5 s more: some servers never end their stream.

    The connection returns to the pool if the stream ends by then.
    """
    now, until, left = asyncio.get_running_loop().time, inf, _AFTER_FINISH_BYTES
    async with aclosing(body):
        while left > 0:
            data = b""
            try:
                async with asyncio.timeout_at(None if until == inf else until):
                    data = await anext(body, b"")
            except Exception:  # whatever breaks behind the end costs nothing
                if answer.finish is None:
                    raise
            if not data:
                if answer.finish is None:  # the last event may lack its end
                    yield b"\n\n"
                return
            yield data
            if answer.finish is not None:
                until, left = min(until, now() + (_DRAIN_S if answer.done else _AFTER_FINISH_S)), left - len(data)


class DataLines:
    """Splits incoming bytes into payloads; buffers an incomplete line. JSON that isn't called data is a payload, too.

    A payload of several lines ends with an empty one, any other with its line.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._begun = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads completed by these bytes; comments, empty events and other fields are skipped."""
        ended = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1  # a last "\r" may be the half of a line's end
        if not ended:
            self._rest.append(data)
            return
        lines = b"".join((*self._rest, data[:ended])).splitlines()
        self._rest = [data[ended:]]
        for line in lines:
            field, begun = line.lstrip(b"\xef\xbb\xbf\0\x1e \t"), self._begun
            payload = field.removeprefix(b"data: ").removeprefix(b"data:").removeprefix(b"error:").strip()
            is_payload = field.startswith((b"data:", b"{", b"error:")) and not _IDLE.fullmatch(payload)
            if begun and not line:
                yield bytes(begun)
                begun.clear()
            elif begun or (is_payload and payload[0] in b"{[" and payload[-1] not in b"}]"):
                begun += b"" if field.startswith(_OTHER_FIELDS) else payload + b" "
                if len(begun) > MAX_LINE_BYTES:
                    raise endless(f"an event of more than {MAX_LINE_BYTES:,} bytes")
            elif is_payload:
                yield payload
