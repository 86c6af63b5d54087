"""What providers say when they refuse, in the forms that they use."""

import pytest

from gateway.llm.errors import ErrorKind
from gateway.llm.protocol.refusal import Refusal, refusal_in


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            b'{"error": {"message": "no", "type": "t", "code": "c", "param": "p", "more": 1}}',
            Refusal(message="no", type="t", code="c", param="p"),
        ),
        (b'{"error": "model not found"}', Refusal(message="model not found")),
        (b'{"object": "error", "message": "no", "type": "t", "code": 42}', Refusal(message="no", type="t", code=42)),
        (b'{"detail": "Not Found"}', Refusal(message="Not Found")),
        (b"<html>\n<h1>Bad gateway</h1>", Refusal(message="<html> <h1>Bad gateway</h1>")),
        (b'{"error": {"message": {"deep": 1}}}', Refusal(message='{"error": {"message": {"deep": 1}}}')),
        (b"\xff" * 3000, Refusal(message="\N{REPLACEMENT CHARACTER}" * 2000)),
        (b"", Refusal()),
    ],
)
def test_every_form_is_understood(body: bytes, told: Refusal) -> None:
    assert refusal_in(body) == told


def test_without_words_the_status_is_told() -> None:
    error = refusal_in(b"").as_error(502)
    assert (error.message, error.kind, error.status) == ("HTTP status 502", ErrorKind.SERVER, 502)


def test_a_number_as_code_is_a_status_only_where_there_is_no_other() -> None:
    busy = Refusal(message="slow", code=429)
    assert (busy.as_error().kind, busy.as_error(500).kind) == (ErrorKind.RATE_LIMIT, ErrorKind.SERVER)


def test_the_time_to_wait_is_kept() -> None:
    assert Refusal(message="slow").as_error(429, {"Retry-After": "17"}).retry_after == 17
