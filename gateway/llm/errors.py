"""The failures of one attempt, classified by HTTP status and code, as SDK exception classes are not reliable; and the
models to try last for a while after one.

litellm raises `InternalServerError` for a refused connection, and Anthropic's "prompt is too long" is a plain 400."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from gateway.domain.errors import SupaclawError
from gateway.domain.time import Clock
from gateway.llm.error_words import OUTPUT, OUTPUT_BOUND, seconds_in, unquoted


class ErrorKind(StrEnum):
    """Kinds of failure, each with its own next step."""

    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    AUTH = "auth"
    NO_CREDIT = "no_credit"
    UNKNOWN_MODEL = "unknown_model"
    CONTEXT_LENGTH = "context_length"
    CONTENT = "content_filter"
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


@dataclass(eq=False, repr=False)
class ModelError(SupaclawError):
    """One attempt failed. `status` is None if there was no HTTP response; `retry_after` is in seconds.

    `words` are those of the provider, "" if the message is ours: what they quote of a prompt decides nothing. `fields`
    are those of the request that the provider names apart from its words.
    """

    kind: ErrorKind
    message: str
    _: KW_ONLY
    status: int | None = None
    retry_after: float | None = None
    code: str | None = None
    words: str = ""
    fields: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.message

    @property
    def repeatable(self) -> bool:
        """Whether the same request may succeed within a minute."""
        return self.kind.transient or self.kind.busy

    @property
    def temporary(self) -> bool:
        """Whether the same content may succeed later, with another key or another model."""
        return self.kind not in (ErrorKind.BAD_REQUEST, ErrorKind.CONTENT, ErrorKind.CONTEXT_LENGTH)

    def without_quotes(self, texts: Iterable[str]) -> "ModelError":
        """The same error, classified without what it quotes of these texts."""
        words = unquoted(self.words, texts)
        return self if words == self.words else replace(self, kind=_kind(self.status, self.code, words), words=words)


_GOOGLE_REFUSALS = ("PERMISSION_DENIED", "UNAUTHENTICATED")
_TOLD_BY: Mapping[ErrorKind, Sequence[int | str]] = {
    ErrorKind.RATE_LIMIT: (429,),
    ErrorKind.OVERLOADED: (498, 503, 529, "overloaded_error"),
    ErrorKind.AUTH: (401, 403, "invalid_api_key", "authentication_error", "permission_error", *_GOOGLE_REFUSALS),
    ErrorKind.NO_CREDIT: (402, "insufficient_quota", "billing_error", "billing_not_active"),
    ErrorKind.UNKNOWN_MODEL: (404, 410, "model_not_found", "not_found_error"),
    ErrorKind.CONTEXT_LENGTH: (413, "context_length_exceeded", "string_above_max_length", "request_too_large"),
    ErrorKind.CONTENT: (451, "content_filter", "content_policy_violation"),
    ErrorKind.SERVER: (408, 409, 423, 425, 499, "tool_use_failed", "output_parse_failed", "json_validate_failed"),
}
"""The HTTP statuses and the codes that mean a kind."""
_KINDS = {told: kind for kind, each in _TOLD_BY.items() for told in each}

_TOO_LONG = re.compile(
    r"context.?(length|window|limit|size)|input token count|input length"
    r"|(prompt|inputs?|request|messages?|conversation|sequence|tokens?)\b.{0,80}"
    r"(too (long|large|many|big)|exceed|over the|(longer|larger|greater) than|maximum|max.{0,3}length|\d ?> ?\d"
    r"|length limit|must (be (<=|less)|have less|not (be more|exceed))|not fit|above the .{0,9}limit|超长|过长)"
    r"|(too many|maximum|max(imum)? (number|context)|exceeds?|over) .{0,40}(prompt|input|tokens?\b|context)"
    r"|reduce the length|at most \d+ input tokens|long context requests|not enough context|zu lang"
    r"|(输入|輸入|入力|上下文|トークン|token).{0,12}(超|过长|過長)",
    re.IGNORECASE | re.DOTALL,
)
_INPUT = re.compile(r"context|input|prompt|messages", re.IGNORECASE)
_TOO_OFTEN = re.compile(
    r"(per[ _-]?|/ ?)(second|minute|hour|day|month)|(rate|request).?limit|quota|\b[rt]p[md]\b|too many requests|throttl"
    r"|please wait",
    re.IGNORECASE,
)
_LIMIT_AND_REQUEST = re.compile(r"limit:?\D{0,12}(\d+).{0,80}request(?:ed)?:?\D{0,12}(\d+)", re.IGNORECASE | re.DOTALL)
_NO_CREDIT = re.compile(
    r"credit balance is too low|insufficient.{0,10}(balance|credits?|quota|funds)|more credits|out of credits"
    r"|payment required|spend(ing)? limit|billing hard limit|in arrears|any credits|budget has been exceeded"
    r"|account is not active|API usage limits|included credits|credits have expired|balance is depleted|good standing"
    r"|account\b.{0,60} is suspended|key limit exceeded|exceeded (their|your) budget|paid (tier|plan|subscription)"
    r"|upgrade your plan|(not enough|overdue) balance|balance (is|has) (insufficient|run out)|top up|余额不足|欠费|残高"
    r"|credits exhausted|unpaid invoice|free trial has",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"api.?key (not (valid|found)|is invalid|expired)|(invalid|incorrect|expired|no|missing) api.?key"
    r"|invalid (.{0,10}\btoken\b|authentication)|unauthorized|login fail|(location|country|region).{0,40}not supported"
    r"|organization has been disabled|(key|token) (has been|is) (revoked|disabled|blocked)|authentication error|的令牌",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"(model|deployment)\b.{0,80}(not exist|not found|isn't available|decommission|no longer|retired|sunset|been shut)"
    r"|(no such|unknown|invalid|unsupported|unavailable) model\b|(access|permission).{0,40}\bmodel\b|not a valid model"
    r"|model ?[^\s,;]* is not supported( by any.*)?\.?$|terms acceptance|模型不存在|allowed to sample"
    r"|model\b.{0,20} (is blocked|disabled|access is denied|identifier is invalid)|not (support chat|a chat model)"
    r"|multiple models are loaded|model is only available|end of (its |the )?life",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"content (management policy|policy|filter)|content_filter|responsible ai|moderation|flagged|guardrail"
    r"|safety.(system|reasons|check)|(inappropriate|harmful) content|prohibited|exists? risk|considered high risk"
    r"|violat\w+ .{0,20}(usage|guideline|polic)|(new_|involves )sensitive|敏感|safety filter|blocked by model armor"
    r"|sensitive (information|words|content)|due to recitation|jailbreak|违规|违法",
    re.IGNORECASE,
)
_UNREACHED = re.compile(
    r"connection (error|refused|reset|attempts failed)|cannot connect|connect call failed"
    r"|name or service not known|disconnected|model\b.{0,20}(unloaded|crashed)|failed to load model",
    re.IGNORECASE,
)
"""Also of a model that a local server has lost."""
_OVERLOADED = re.compile(r"overload|capacity temporarily|at (maximum )?capacity|负载过高|繁忙", re.IGNORECASE)


def classify(
    status: int | None,
    code: str | None,
    message: str,
    headers: Mapping[str, str] | None = None,
    wait: float | None = None,
) -> ModelError:
    """The error for an HTTP response, or for an error inside a stream (then `status` may be None).

    `wait` is what the body says of the time to wait, in seconds.
    """
    kind, named = _kind(status, code, message), retry_after(headers or {})
    wait = wait if wait is not None and wait > (named or 0.0) else named
    return ModelError(kind, message, status=status, retry_after=wait, code=code, words=message)


def _kind(status: int | None, code: str | None, message: str) -> ErrorKind:
    if code in _KINDS:
        return _KINDS[code]
    if status not in (402, 529) and (found := _by_text(status, message)):
        return found
    if code and code.startswith("rate_limit"):
        return ErrorKind.RATE_LIMIT
    if status in _KINDS:
        return _KINDS[status]
    return ErrorKind.BAD_REQUEST if status is not None and 400 <= status < 500 else ErrorKind.SERVER


def _by_text(status: int | None, message: str) -> ErrorKind | None:
    """The kind by the words of the provider, the surest first: the same status means different things to each."""
    if _NO_CREDIT.search(message):
        return ErrorKind.NO_CREDIT
    if status == 401:
        return ErrorKind.UNKNOWN_MODEL if _NO_MODEL.search(message) and not _BAD_KEY.search(message) else None
    if (status is None or status == 429 or status >= 500) and _OVERLOADED.search(message):
        return ErrorKind.OVERLOADED
    if _can_never_fit(message):
        return ErrorKind.CONTEXT_LENGTH
    if _TOO_OFTEN.search(message):
        return ErrorKind.RATE_LIMIT if status in (None, 400, 403, 413, 429) else None
    if status != 404 and _too_long(message):
        return ErrorKind.CONTEXT_LENGTH
    if (status in (None, 400) or status >= 500) and _UNREACHED.search(message):
        return ErrorKind.NETWORK
    if status is not None and (status >= 500 or status == 429):
        return None
    kinds = ((ErrorKind.AUTH, _BAD_KEY), (ErrorKind.CONTENT, _REFUSED), (ErrorKind.UNKNOWN_MODEL, _NO_MODEL))
    return next((kind for kind, words in kinds if words.search(message)), None)


def _too_long(message: str) -> bool:
    """Whether the prompt is too long, alone or with an answer as long as it may be."""
    of_answer = OUTPUT_BOUND.search(message) or (OUTPUT.search(message) and not _INPUT.search(message))
    return _TOO_LONG.search(message) is not None and not of_answer


def _can_never_fit(message: str) -> bool:
    """Whether one request takes more than a limit of tokens per time: waiting doesn't help."""
    found = _LIMIT_AND_REQUEST.search(message)
    return found is not None and "token" in message.lower() and int(found[2]) > int(found[1])


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `Retry-After` (a time or an HTTP date), or until a limit is reset.

    None if no header is usable.
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    if (ms := _number(lower.get("retry-after-ms") or lower.get("x-ms-retry-after-ms", ""))) is not None:
        return ms / 1000
    text = lower.get("retry-after", "")
    if (seconds := _number(text)) is not None:
        return seconds
    try:
        return max(0.0, (parsedate_to_datetime(text) - (now or datetime.now(UTC))).total_seconds())
    except (ValueError, TypeError):
        return _until_reset(lower)


_LONGEST_RESET_S = 10**8
"""More seconds are a date."""


def _until_reset(headers: Mapping[str, str]) -> float | None:
    """The time until the last of the limits of which nothing remains is reset, as `…ratelimit…` headers tell it."""
    spent = [name for name, left in headers.items() if "ratelimit-remaining" in name and _number(left) == 0]
    resets = [name.replace("remaining", "reset") for name in spent]
    waits = [_number(headers.get(name) or headers.get(f"{name}-after", "")) or 0.0 for name in resets]
    return max((wait for wait in waits if 0 < wait < _LONGEST_RESET_S), default=None)


def _number(text: str) -> float | None:
    """A number, or the seconds that a time with units has; None for anything else."""
    try:
        number = float(text)
    except ValueError:
        return seconds_in(f"after {text}")
    return number if 0 <= number < float("inf") else None


MAX_ERROR_CHARS = 2_000
SHORTEST_SECRET = 4
"""Characters; a placeholder such as `x`, for a server without keys, is in every sentence."""
_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk|gsk|xai|AIza)[-_A-Za-z0-9]{12,}")


def scrub(text: str, secrets: Iterable[str]) -> str:
    """The text as one line of at most 2,000 characters, with these secrets and anything like a key masked."""
    for secret in filter(lambda secret: len(secret) >= SHORTEST_SECRET, secrets):
        text = text.replace(secret, "***")
    line = " ".join(_LOOKS_LIKE_A_KEY.sub("***", text).split())
    return line if len(line) <= MAX_ERROR_CHARS else f"{line[: MAX_ERROR_CHARS - 1]}…"


_COOLDOWN_SECONDS = {
    **dict.fromkeys((kind for kind in ErrorKind if kind.transient or kind.busy), 60.0),
    ErrorKind.OVERLOADED: 30.0,
    **dict.fromkeys((ErrorKind.AUTH, ErrorKind.NO_CREDIT, ErrorKind.UNKNOWN_MODEL), 300.0),
}


@dataclass(frozen=True, slots=True)
class Cooling:
    """A model to be tried last for another `seconds`."""

    model: str
    kind: ErrorKind
    seconds: float


class Cooldowns:
    """Kept in memory only: a restart clears all cooldowns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, tuple[float, ErrorKind]] = {}

    def note(self, model: str, error: ModelError) -> None:
        """Start a cooldown after a final failure; a malformed or oversized prompt does not count against the model."""
        usual = _COOLDOWN_SECONDS.get(error.kind)
        if usual is not None:
            wait = error.retry_after if error.kind.busy and error.retry_after is not None else usual
            self._until[model] = (self._clock.monotonic() + wait, error.kind)

    def clear(self, model: str) -> None:
        """End the cooldown: the model answered."""
        self._until.pop(model, None)

    def order(self, chain: Sequence[str]) -> list[str]:
        """The whole chain, models in cooldown last."""
        cooling = {entry.model for entry in self.current()}
        return sorted(chain, key=lambda model: model in cooling)

    def current(self) -> tuple[Cooling, ...]:
        """The cooldowns in force."""
        now = self._clock.monotonic()
        return tuple(Cooling(model, kind, until - now) for model, (until, kind) in self._until.items() if until > now)
