from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.llm.protocol.answer_reader import DataLines

STREAM = b': keep-alive\n\nevent: x\ndata: {"a": 1}\r\n\ndata:{"b": "\xc3\xa4"}\n\ndata: [DONE]\n\n'


@given(st.lists(st.integers(0, len(STREAM))))
def test_payloads_are_the_same_however_the_bytes_arrive(cuts: list[int]) -> None:
    lines, places = DataLines(), [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(places)]
    payloads = [payload for piece in pieces for payload in lines.feed(piece)]
    assert payloads == [b'{"a": 1}', b'{"b": "\xc3\xa4"}', b"[DONE]"]
