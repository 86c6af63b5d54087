"""Facts in the words of an error: the time to wait, the longest answer, and what is only quoted."""

import pytest

from gateway.llm.error_words import output_room, seconds_in, unquoted
from gateway.llm.errors import ErrorKind, classify
from gateway.llm.protocol.refusal import parse_refusal


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Please try again in 7.66s. Visit the console.", 7.66),
        ("Quota exceeded. Please retry in 15s.", 15),
        ("Please try again in 1m12.5s", 72.5),
        ("Rate limit reached. Try again in 2 minutes and 5 seconds", 125),
        ("Retry after 800ms", 0.8),
        ("Try again in 250 milliseconds.", 0.25),
        ("try again in 6h 3m", 21_780),
        ("Please wait 20 seconds before the next request", 20),
        ("Limit 8000 tokens per minute", None),
        ("Slow down", None),
    ],
)
def test_a_time_in_words(message: str, seconds: float | None) -> None:
    assert seconds_in(message) == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (b'[{"error": {"message": "Quota.", "details": [{"retryDelay": "15s"}]}}]', 15),
        (b'{"error": {"message": "Quota.", "details": [{"retryDelay": "15s"}, {"quotaId": "RequestsPerDay"}]}}', 3600),
        (b'{"error": {"message": "Rate limit reached on tokens per day (TPD). Please try again in 2h"}}', 7200),
        (b'{"error": {"message": "Slow down"}}', None),
    ],
)
def test_a_time_in_the_body(body: bytes, seconds: float | None) -> None:
    assert parse_refusal(body, 429).retry_after == seconds


@pytest.mark.parametrize(
    ("message", "too_long", "room"),
    [
        ("max_tokens is too large: 4096. This model supports at most 2048 completion tokens.", False, 2048),
        ("Range of max_tokens should be [1, 2048], got 4096", False, 2048),
        ("max_tokens: 4096 > 2000, which is the maximum allowed number of output tokens", False, 2000),
        ("max_tokens must be positive", False, None),
        ("Temperature must be below 2000, not 4096", False, None),
        ("input length and `max_tokens` exceed context limit: 9100 + 4096 > 12000", True, 2900),
        ("maximum context length is 8192 tokens. However, you requested 10096 (6000 in the messages)", True, 2192),
        ("This model's maximum context length is 8192 tokens. You sent 9000 tokens of input.", True, None),
        ("prompt is too long: 9000 > 8192", True, None),
    ],
)
def test_the_room_for_an_answer(message: str, too_long: bool, room: int | None) -> None:
    assert output_room(message, 4096, too_long=too_long) == room


LONG = "My printer says that its context length is exceeded. What does it mean?"


def test_what_a_message_quotes_of_the_prompt_decides_nothing() -> None:
    error = classify(400, None, f"Invalid value; your text was: {LONG}")
    assert error.kind is ErrorKind.CONTEXT_LENGTH
    heard = error.without_quotes([f"[2026-11-22 10:00 UTC] {LONG}", "other words"])
    assert (heard.kind, heard.message) == (ErrorKind.BAD_REQUEST, error.message)
    assert classify(400, None, "context length exceeded").without_quotes([LONG]).kind is ErrorKind.CONTEXT_LENGTH


@pytest.mark.parametrize("message", ["", "one two three", "none of it"])
def test_a_message_without_quotes_is_left_as_it_is(message: str) -> None:
    assert unquoted(message, [LONG]) == message
