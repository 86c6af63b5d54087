"""Refusals of providers, in the forms that servers use."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.domain.json import json_or_text
from gateway.llm.error_words import seconds_in
from gateway.llm.errors import ErrorKind, ModelError, classify
from gateway.llm.protocol.bounds import MAX_REFUSAL_BYTES

_MAX_QUOTED_BYTES = 2_000
_DAYS = re.compile(r"(?i)per[ _-]?(day|week|month)|/ ?month|(dai|week|month)ly\b|[rt]pd\b|24 ?h|86400s|[今每][日天]")
_DAY_WAIT_S = 3_600.0
"""At least so long for a quota of a day or more, whatever shorter time a server names beside it."""
_MARKUP = re.compile(r"<(style|script)\b[^<>]*>[^<]*</\1>|<[^<>]*>", re.IGNORECASE)
_PLACES = (
    *("metadata", "raw", "fault", "base_resp", "errors", "error_description", "detail", "message", "msg", "error"),
    *("status_msg", "error_msg", "errmsg", "error_message", "errormessage", "faultstring", "reason", "text", "title"),
)
"""Fields that hold the words of an error, or an object with them, the surest first."""
_FURTHER = ("choices", "response", "body", "data", "details")
"""Those that may, if no other does."""
_STATUSES = ("code", "status", "status_code", "statuscode", "http_status")
_DEEPEST = 8
_MOST_FAULTS = 16


def parse_refusal(body: bytes, status: int | None = None, headers: Mapping[str, str] | None = None) -> ModelError:
    """The error in the body of a refused request, or in a stream; if its form is unknown, quotes its beginning.

    Without an HTTP `status`, a number in the body that looks like one serves.
    """
    text = body.decode("utf-8", "replace")
    told = _told(json_or_text(text))
    code, *others = (_text(told.get(name)) for name in ("code", "type", "status"))
    is_known = any(isinstance(told.get(name), str) for name in ("error", "detail", "code", "type"))
    message = told["message"] or ("" if is_known else _quoted(text))
    if status is None:
        named = (str(told.get(name)) for name in _STATUSES)
        status = next((int(number) for number in named if re.fullmatch(r"[45]\d\d", number)), None)
    kind = next(filter(None, (code, *others)), None)
    error = classify(status, kind, message or f"HTTP status {status}", headers, wait_in(text, message))
    error.fields = frozenset({*filter(_text, told.get("loc") or ()), _text(told.get("param"))})
    return error


def no_answer(body: bytes) -> ModelError:
    """The error for a body that is no answer, though its status says so: what it tells, or what it is."""
    text = body[:MAX_REFUSAL_BYTES].decode("utf-8", "replace").strip()
    form = "a web page" if text.startswith("<") else "something unknown" if text else "nothing"
    if form != "something unknown" or (text[:1] in "{[" and not _told(json_or_text(text))["message"]):
        return ModelError(ErrorKind.SERVER, f"the server sent {form}, not an answer: {_quoted(text)[:80]}".rstrip(": "))
    return parse_refusal(text.encode())


def _told(data: Any, depth: int = _DEEPEST) -> dict[str, Any]:
    """The fields of an error, wherever it stands in what a server says; its words are the `message`."""
    match data:
        case str(text) if text.lstrip().startswith(("{", "[")) and json_or_text(text) != text and depth:
            return _told(json_or_text(text), depth - 1)
        case str(text):
            return {"message": _quoted(text)}
        case [_, *_] if depth:
            each = [_told(part, depth - 1) for part in data[:_MOST_FAULTS]]
            words = "; ".join(told["message"] for told in each if told["message"])
            return {**each[0], "message": words, "loc": [step for told in each for step in told.get("loc") or ()]}
        case dict() if depth:
            own = {str(name).lower(): value for name, value in data.items()}
            inner = [_told(value, depth - 1) for value in _ordered(own)]
            found = next((told for told in inner if told["message"]), inner[0] if inner else {"message": ""})
            place = ".".join(map(str, own["loc"])) if isinstance(own.get("loc"), list) else ""
            return {**own, **found, "message": f"{place}: {found['message']}" if place else found["message"]}
    return {"message": ""}


def _ordered(fields: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the values that may hold the words: objects before plain texts, which often say less."""
    usual = [fields[name] for name in _PLACES if fields.get(name)]
    yield from sorted(usual, key=lambda value: isinstance(value, str))
    yield from (fields[name] for name in _FURTHER if fields.get(name))


def _quoted(body: str) -> str:
    """The beginning of a body of unknown form; of a web page, its words."""
    words = _MARKUP.sub(" ", body) if body.lstrip().startswith("<") else body
    return " ".join(words[:_MAX_QUOTED_BYTES].split())


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


_WAIT = re.compile(r'(?i)"(?:retry|resets?|wait|estimated)(?!s?_?at)\w*?(_ms)?"[^\d,]{1,15}?(\d+(?:\.\d+)?)')


def wait_in(body: str, message: str) -> float | None:
    """Seconds to wait, as an error's body or its message says."""
    found = _WAIT.search(body)
    wait = float(found[2]) / (1000 if found[1] else 1) if found else seconds_in(message)
    return max(wait or 0.0, _DAY_WAIT_S) if _DAYS.search(f"{body} {message}") else wait
