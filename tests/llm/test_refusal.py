"""What providers say when they refuse, in the forms that they use."""

import pytest

from gateway.llm.errors import ErrorKind
from gateway.llm.protocol.refusal import ProviderRefusal, parse_refusal


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            b'{"error": {"message": "no", "type": "t", "code": "c", "param": "p", "more": 1}}',
            ProviderRefusal(message="no", type="t", code="c", param="p"),
        ),
        (b'{"error": "model not found"}', ProviderRefusal(message="model not found")),
        (
            b'{"object": "error", "message": "no", "type": "t", "code": 42}',
            ProviderRefusal(message="no", type="t", code=42),
        ),
        (b'{"detail": "Not Found"}', ProviderRefusal(message="Not Found")),
        (b"<html>\n<h1>Bad gateway</h1>", ProviderRefusal(message="Bad gateway")),
        (b'{"error": {"message": {"deep": 1}}}', ProviderRefusal(message='{"error": {"message": {"deep": 1}}}')),
        (b"\xff" * 3000, ProviderRefusal(message="\N{REPLACEMENT CHARACTER}" * 2000)),
        (b"", ProviderRefusal()),
    ],
)
def test_every_form_is_understood(body: bytes, told: ProviderRefusal) -> None:
    assert parse_refusal(body) == told


def test_without_words_the_status_is_told() -> None:
    error = parse_refusal(b"").as_error(502)
    assert (error.message, error.kind, error.status) == ("HTTP status 502", ErrorKind.SERVER, 502)


def test_a_number_as_code_is_a_status_only_where_there_is_no_other() -> None:
    busy = ProviderRefusal(message="slow", code=429)
    assert (busy.as_error().kind, busy.as_error(500).kind) == (ErrorKind.RATE_LIMIT, ErrorKind.SERVER)


def test_the_time_to_wait_is_kept() -> None:
    assert ProviderRefusal(message="slow").as_error(429, {"Retry-After": "17"}).retry_after == 17
