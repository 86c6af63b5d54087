from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from aiohttp import ClientPayloadError
from hypothesis import given
from hypothesis import strategies as st

from gateway.llm.errors import ModelError
from gateway.llm.protocol.answer_reader import DataLines, read_answer
from gateway.llm.provider import ProviderReply

STREAM = b': keep-alive\n\nevent: x\ndata: {"a": 1}\r\n\ndata:{"b": "\xc3\xa4"}\n\ndata: [DONE]\n\n'


@given(st.lists(st.integers(0, len(STREAM))))
def test_payloads_are_the_same_however_the_bytes_arrive(cuts: list[int]) -> None:
    lines, places = DataLines(), [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(places)]
    payloads = [payload for piece in pieces for payload in lines.feed(piece)]
    assert payloads == [b'{"a": 1}', b'{"b": "\xc3\xa4"}', b"[DONE]"]


def test_an_event_of_several_lines_is_bounded_as_one_line_is() -> None:
    many = (b'data: {"a": "' + b"a" * 2**12 + b"\n") * 300
    with pytest.raises(ModelError, match="does not end"):
        list(DataLines().feed(many))


@pytest.mark.parametrize("end", [b"\r", b"\r\n"])
@given(st.lists(st.integers(0, len(STREAM))))
def test_any_end_of_a_line_is_one(end: bytes, cuts: list[int]) -> None:
    stream = STREAM.replace(b"\r", b"").replace(b"\n", end).replace(b'{"a": 1}', b'{"a":' + end + b"data: 1}")
    lines, places = DataLines(), [0, *sorted(cuts), len(stream)]
    payloads = [payload for start, end in pairwise(places) for payload in lines.feed(stream[start:end])]
    assert [payload.split() for payload in payloads[:1]] == [[b'{"a":', b"1}"]]
    assert payloads[1:] + list(lines.feed(b"\n")) == [b'{"b": "\xc3\xa4"}', b"[DONE]"]


@pytest.mark.parametrize("last", [b"", b"data: [DONE]\n"])
async def test_a_connection_that_breaks_behind_the_end_of_an_answer_spoils_nothing(last: bytes) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b'data: {"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}\n' + last
        raise ClientPayloadError

    *_, reply = [event async for event in read_answer(body(), "")]
    assert isinstance(reply, ProviderReply)
    assert reply.text == "Hello"
