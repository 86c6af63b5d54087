"""What providers say when they refuse, in the forms that they use."""

import pytest

from gateway.llm.errors import ErrorKind
from gateway.llm.protocol.refusal import parse_refusal


@pytest.mark.parametrize(
    ("body", "message", "code", "field"),
    [
        (b'{"error": {"message": "no", "type": "t", "code": "c", "param": "p", "more": 1}}', "no", "c", "p"),
        (b'{"error": "model not found"}', "model not found", None, ""),
        (b'{"object": "error", "message": "no", "type": "t", "code": 42}', "no", "t", ""),
        (b'{"detail": "Not Found"}', "Not Found", None, ""),
        (b"<html>\n<h1>Bad gateway</h1>", "Bad gateway", None, ""),
        (b'{"error": {"message": {"deep": 1}}}', '{"error": {"message": {"deep": 1}}}', None, ""),
        (b"\xff" * 3000, "\N{REPLACEMENT CHARACTER}" * 2000, None, ""),
        (b"", "HTTP status 502", None, ""),
    ],
)
def test_every_form_is_understood(body: bytes, message: str, code: str | None, field: str) -> None:
    error = parse_refusal(body, 502)
    assert (error.message, error.code, error.fields, error.status) == (message, code, {field}, 502)


def test_a_number_as_code_is_a_status_only_where_there_is_no_other() -> None:
    busy = b'{"message": "slow", "code": 429}'
    assert (parse_refusal(busy).kind, parse_refusal(busy, 500).kind) == (ErrorKind.RATE_LIMIT, ErrorKind.SERVER)


def test_the_time_to_wait_is_kept() -> None:
    assert parse_refusal(b"slow", 429, {"Retry-After": "17"}).retry_after == 17
