"""Refusals of providers, in the forms that servers use."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.domain.json import json_or_text
from gateway.llm.error_words import seconds_in
from gateway.llm.errors import ModelError, classify

_MAX_QUOTED_BYTES = 2_000
_A_DAY = re.compile(r"per[ _-]?day|calls ?/ ?(day|month)|\bdaily\b|\b[rt]pd\b|今日|每日", re.IGNORECASE)
_DAY_WAIT_S = 3_600.0
"""At least so long for a quota of a day, whatever shorter time a server names beside it."""
_MARKUP = re.compile(r"<(style|script)\b[^<>]*>[^<]*</\1>|<[^<>]*>", re.IGNORECASE)


def parse_refusal(body: bytes, status: int | None = None, headers: Mapping[str, str] | None = None) -> ModelError:
    """The error in the body of a refused request, or in a stream; if its form is unknown, quotes its beginning.

    Without an HTTP `status`, a numeric code serves as one.
    """
    text = body.decode("utf-8", "replace")
    told = _error_in(json_or_text(text))
    words = next(filter(None, (_text(told.get(name)) for name in ("message", "error", "status_msg", "error_msg"))), "")
    message = words or "; ".join(_details(told.get("detail")))
    if inner := _upstream(told):
        message = f"{message}: {inner}" if message else inner
    if not message and not any(
        isinstance(told.get(key), str) for key in ("message", "error", "detail", "code", "type")
    ):
        message = _quoted(text)
    code, wait = told.get("code"), wait_in(text, message)
    if status is None and isinstance(code, int) and not isinstance(code, bool):
        status = code
    kind = _text(code) or _text(told.get("type")) or _text(told.get("status")) or None
    error = classify(status, kind, message or f"HTTP status {status}", headers, wait)
    error.fields = frozenset({*_places(told.get("detail")), _text(told.get("param"))})
    return error


def _error_in(data: Any) -> Mapping[str, Any]:
    """The object with the error: whole, below `error`, in a choice, or the first of a list."""
    match data:
        case {"error": dict(error)} | {"base_resp": dict(error)} | {"message": dict(error)}:
            return error
        case [first, *_] | {"errors": [first, *_]} | {"choices": [{"error": dict()} as first, *_]}:
            return _error_in(first)
        case dict():
            return data
        case _:
            return {}


def _quoted(body: str) -> str:
    """The beginning of a body of unknown form; of a web page, its words."""
    words = _MARKUP.sub(" ", body) if body.lstrip().startswith("<") else body
    return " ".join(words[:_MAX_QUOTED_BYTES].split())


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _details(detail: object) -> Iterator[str]:
    """Yield the faults of a list as validators write it: the place, then what is wrong."""
    match detail:
        case str():
            yield detail
        case list():
            for each in detail:
                match each:
                    case {"msg": str(words), "loc": list(place)}:
                        yield f"{'.'.join(map(str, place))}: {words}"
                    case {"msg": str(words)} | str(words):
                        yield words


def _places(detail: object) -> Iterator[str]:
    for each in detail if isinstance(detail, list) else ():
        match each:
            case {"loc": list(place)}:
                yield from (step for step in place if isinstance(step, str))


def _upstream(told: Mapping[str, Any]) -> str:
    """The error of the server behind a router, as OpenRouter passes it on."""
    match told:
        case {"metadata": {"raw": str(raw)}}:
            return parse_refusal(raw.encode()).message
    return ""


_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')


def wait_in(body: str, message: str) -> float | None:
    """Seconds to wait, as an error's body or its message says."""
    found = _RETRY_DELAY.search(body)
    wait = float(found[1]) if found else seconds_in(message)
    return max(wait or 0.0, _DAY_WAIT_S) if _A_DAY.search(f"{body} {message}") else wait
