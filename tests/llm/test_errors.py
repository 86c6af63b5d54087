"""Errors by status, code and words."""

from datetime import UTC, datetime

import pytest

from gateway.llm.errors import ErrorKind, classify, retry_after


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (429, None, "Rate limit reached", ErrorKind.RATE_LIMIT),
        (429, "insufficient_quota", "You exceeded your current quota", ErrorKind.NO_CREDIT),
        (402, None, "Insufficient Balance", ErrorKind.NO_CREDIT),
        (400, None, "Your credit balance is too low to access the API", ErrorKind.NO_CREDIT),
        (529, None, "Overloaded", ErrorKind.OVERLOADED),
        (503, None, "The model is overloaded", ErrorKind.OVERLOADED),
        (500, None, "AnthropicException - Overloaded", ErrorKind.OVERLOADED),
        (401, None, "no", ErrorKind.AUTH),
        (403, None, "no", ErrorKind.AUTH),
        (400, None, "API key not valid. Please pass a valid API key.", ErrorKind.AUTH),
        (400, "context_length_exceeded", "…", ErrorKind.CONTEXT_LENGTH),
        (400, None, "prompt is too long: 210000 tokens > 200000 maximum", ErrorKind.CONTEXT_LENGTH),
        (400, None, "The input token count (1200000) exceeds the maximum", ErrorKind.CONTEXT_LENGTH),
        (400, None, "This model's maximum context length is 8192 tokens", ErrorKind.CONTEXT_LENGTH),
        (413, None, "too large", ErrorKind.CONTEXT_LENGTH),
        (429, None, "Too many tokens per minute", ErrorKind.RATE_LIMIT),
        (400, None, "tools.0.name: String should match pattern", ErrorKind.BAD_REQUEST),
        (422, None, "no", ErrorKind.BAD_REQUEST),
        (404, None, "no such model", ErrorKind.UNKNOWN_MODEL),
        (500, None, "internal error", ErrorKind.SERVER),
        (502, None, "bad gateway", ErrorKind.SERVER),
        (408, None, "timeout", ErrorKind.SERVER),
        (500, None, "litellm.InternalServerError: Connection error.", ErrorKind.NETWORK),
        (None, None, "Cannot connect to host", ErrorKind.NETWORK),
        (None, "overloaded_error", "busy", ErrorKind.OVERLOADED),
        (None, None, "whatever", ErrorKind.SERVER),
    ],
)
def test_what_an_answer_means(status: int | None, code: str | None, message: str, kind: ErrorKind) -> None:
    error = classify(status, code, message)
    assert (error.kind, error.status, error.message) == (kind, status, message)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "20"}, 20),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"Retry-After": "Tue, 01 Jan 2030 00:00:30 GMT"}, 30),
        ({"Retry-After": "Mon, 31 Dec 2029 00:00:00 GMT"}, 0),
        ({"Retry-After": "soon"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m2.5s"}, 62.5),
        ({"x-ratelimit-remaining-tokens": "7", "x-ratelimit-reset-tokens": "1m2.5s"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1741305600"}, None),
        ({"Retry-After": "9", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "60"}, 9),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "inf"}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=datetime(2030, 1, 1, tzinfo=UTC)) == seconds


def test_the_wait_is_part_of_the_error() -> None:
    assert classify(429, None, "slow", {"Retry-After": "3"}).retry_after == 3
