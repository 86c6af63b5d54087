"""The failures of one attempt, classified by HTTP status and code: SDK exception classes are not reliable.

litellm raises `InternalServerError` for a refused connection, and Anthropic's "prompt is too long" is a plain 400."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from gateway.domain.errors import SupaclawError


class ErrorKind(StrEnum):
    """Kinds of failure, each with its own next step."""

    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    AUTH = "auth"
    NO_CREDIT = "no_credit"
    UNKNOWN_MODEL = "unknown_model"
    CONTEXT_LENGTH = "context_length"
    BAD_REQUEST = "bad_request"
    SERVER = "server"
    NETWORK = "network"
    SILENCE = "silence"
    ENDLESS = "endless"

    @property
    def transient(self) -> bool:
        """Whether the same model is likely to answer in a few seconds."""
        return self in (ErrorKind.SERVER, ErrorKind.NETWORK, ErrorKind.SILENCE, ErrorKind.ENDLESS)

    @property
    def busy(self) -> bool:
        """Whether the model works but is overloaded; other models are asked first."""
        return self in (ErrorKind.RATE_LIMIT, ErrorKind.OVERLOADED)


class ModelError(SupaclawError):
    """One attempt failed. `status` is None if there was no HTTP response; `retry_after` is in seconds."""

    def __init__(
        self, kind: ErrorKind, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        self.retry_after = retry_after


_BY_CODE = {
    "context_length_exceeded": ErrorKind.CONTEXT_LENGTH,
    "string_above_max_length": ErrorKind.CONTEXT_LENGTH,
    "request_too_large": ErrorKind.CONTEXT_LENGTH,
    "insufficient_quota": ErrorKind.NO_CREDIT,
    "billing_error": ErrorKind.NO_CREDIT,
    "rate_limit_exceeded": ErrorKind.RATE_LIMIT,
    "rate_limit_error": ErrorKind.RATE_LIMIT,
    "overloaded_error": ErrorKind.OVERLOADED,
    "invalid_api_key": ErrorKind.AUTH,
    "authentication_error": ErrorKind.AUTH,
    "permission_error": ErrorKind.AUTH,
    "model_not_found": ErrorKind.UNKNOWN_MODEL,
    "not_found_error": ErrorKind.UNKNOWN_MODEL,
}

_BY_STATUS = {
    400: ErrorKind.BAD_REQUEST,
    401: ErrorKind.AUTH,
    402: ErrorKind.NO_CREDIT,
    403: ErrorKind.AUTH,
    404: ErrorKind.UNKNOWN_MODEL,
    408: ErrorKind.SERVER,
    409: ErrorKind.SERVER,
    413: ErrorKind.CONTEXT_LENGTH,
    425: ErrorKind.SERVER,
    429: ErrorKind.RATE_LIMIT,
    503: ErrorKind.OVERLOADED,
    529: ErrorKind.OVERLOADED,
}

_TOO_LONG = re.compile(
    r"context.?(length|window)|prompt is too long|input is too long|too many (input )?tokens|maximum.{0,20}tokens"
    r"|exceeds? the (maximum|model's|available context)|input token count",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"credit balance is too low|insufficient.{0,10}(balance|credits|quota)", re.IGNORECASE)
_BAD_KEY = re.compile(r"api.?key (not valid|is invalid)|invalid api.?key|incorrect api.?key", re.IGNORECASE)
_UNREACHED = re.compile(
    r"connection (error|refused|reset|attempts failed)|cannot connect|connect call failed"
    r"|name or service not known|disconnected",
    re.IGNORECASE,
)


def classify(
    status: int | None, code: str | None, message: str, headers: Mapping[str, str] | None = None
) -> ModelError:
    """The error for an HTTP response, or for an error inside a stream (then `status` may be None)."""
    kind = _kind(status, code, message)
    return ModelError(kind, message, status=status, retry_after=retry_after(headers or {}))


def _kind(status: int | None, code: str | None, message: str) -> ErrorKind:
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status in (400, 413, 422, 429, 500, None) and (found := _by_text(status, message)):
        return found
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return ErrorKind.BAD_REQUEST if status is not None and 400 <= status < 500 else ErrorKind.SERVER


def _by_text(status: int | None, message: str) -> ErrorKind | None:
    if _NO_CREDIT.search(message):
        return ErrorKind.NO_CREDIT
    if status in (500, None):
        if "overloaded" in message.lower():
            return ErrorKind.OVERLOADED
        return ErrorKind.NETWORK if _UNREACHED.search(message) else None
    if status == 429:
        return None
    if _BAD_KEY.search(message):
        return ErrorKind.AUTH
    return ErrorKind.CONTEXT_LENGTH if _TOO_LONG.search(message) else None


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `Retry-After` (seconds or an HTTP date); None if neither is usable."""
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    if (ms := _number(lower.get("retry-after-ms", ""))) is not None:
        return ms / 1000
    text = lower.get("retry-after", "")
    if (seconds := _number(text)) is not None:
        return seconds
    try:
        return max(0.0, (parsedate_to_datetime(text) - (now or datetime.now(UTC))).total_seconds())
    except (ValueError, TypeError):
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


MAX_ERROR_CHARS = 2_000
_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk|gsk|xai|AIza)[-_A-Za-z0-9]{12,}")


def scrub(text: str, secrets: Iterable[str]) -> str:
    """The text as one line of at most 2,000 characters, with these secrets and anything like a key masked."""
    for secret in secrets:
        text = text.replace(secret, "***")
    line = " ".join(_LOOKS_LIKE_A_KEY.sub("***", text).split())
    return line if len(line) <= MAX_ERROR_CHARS else f"{line[: MAX_ERROR_CHARS - 1]}…"
