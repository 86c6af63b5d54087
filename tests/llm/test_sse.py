from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from aiohttp import ClientPayloadError
from hypothesis import given
from hypothesis import strategies as st

from gateway.llm.protocol.answer_reader import DataLines, read_answer
from gateway.llm.provider import ProviderReply

STREAM = b': keep-alive\n\nevent: x\ndata: {"a": 1}\r\n\ndata:{"b": "\xc3\xa4"}\n\ndata: [DONE]\n\n'


@given(st.lists(st.integers(0, len(STREAM))))
def test_payloads_are_the_same_however_the_bytes_arrive(cuts: list[int]) -> None:
    lines, places = DataLines(), [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(places)]
    payloads = [payload for piece in pieces for payload in lines.feed(piece)]
    assert payloads == [b'{"a": 1}', b'{"b": "\xc3\xa4"}', b"[DONE]"]


@pytest.mark.parametrize("last", [b"", b"data: [DONE]\n"])
async def test_a_connection_that_breaks_behind_the_end_of_an_answer_spoils_nothing(last: bytes) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b'data: {"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}\n' + last
        raise ClientPayloadError

    *_, reply = [event async for event in read_answer(body(), "")]
    assert isinstance(reply, ProviderReply)
    assert reply.text == "Hello"
