"""The errors for answers of Telegram that are not "ok".

| answer | the request was | error |
| --- | --- | --- |
| 429, 420, FLOOD_WAIT_x, "retry after", whatever the code | not carried out | `TooFast` |
| 5xx; 2xx that cannot be read | perhaps carried out | `Unanswered` |
| migrate_to_chat_id | not carried out; the chat has another id | `Moved` |
| 401, 404, "Logged out" | not carried out; the token is not valid | `TokenRefused` |
| 409 | not carried out; another program receives the updates | `Conflict` |
| 403 in Telegram's own words | refused, in any form | `Forbidden` |
| 400 in Telegram's own words, 413, 404 "method not found" | refused | `Refused` |
| any other code, or none; 3xx and 4xx of a proxy | not carried out | `TurnedAway` |
"""

import re
from collections.abc import Mapping
from typing import Any

from gateway.domain.channels.platform import PlatformError, Refused, TokenRefused, TooFast, TurnedAway, Unanswered
from gateway.domain.channels.platform import seconds_to_wait as seconds
from gateway.domain.json import fields_of, json_or_text

_TOO_FAST = re.compile(r"too many requests|flood|_WAIT_\d|retry (?:after|in) \d", re.IGNORECASE)
_SECONDS = re.compile(r"(?:_WAIT_|retry (?:after|in) )(\d+)", re.IGNORECASE)


class Forbidden(Refused):
    """The bot may not write in that chat at all."""


class Moved(TurnedAway):
    """The group became a supergroup with the id `chat`."""

    def __init__(self, chat: int) -> None:
        super().__init__(f"the group became a supergroup with id {chat}")
        self.chat = chat


class Conflict(TurnedAway):
    """A webhook or another program receives the updates."""

    trouble = "other_receiver"
    owner_must_act = True

    def __init__(self, refusal: str) -> None:
        super().__init__(f"another program uses this bot's token; stop it, or give each a bot of its own ({refusal})")


def refusal(status: int, retry_after: str | None, content: str) -> PlatformError:
    """The error for an answer with this status, `Retry-After` header and body."""
    error = _error_body(content)
    code, words = error.get("error_code"), str(error.get("description") or "").partition("\n")[0]
    code = code if isinstance(code, int) else status
    more = error.get("parameters")
    asked = seconds(more.get("retry_after")) if isinstance(more, dict) else None
    if code in {420, 429} or asked or (code < 500 and _TOO_FAST.search(words)):
        named = _SECONDS.search(words)
        return TooFast("Telegram", asked or seconds(named and named[1]) or seconds(retry_after))
    if code >= 500 or (status < 300 and not error):
        return Unanswered(f"Telegram answered {code}" if code >= 500 else "unreadable answer from Telegram")
    if isinstance(more, dict) and isinstance(chat := more.get("migrate_to_chat_id"), int):
        return Moved(chat)
    return _rejection(code, words) if error or code == 413 else TurnedAway(f"Telegram answered {code}")


def _rejection(code: int, words: str) -> PlatformError:
    if (code in {401, 404} and "method not found" not in words) or words.casefold() == "logged out":
        return TokenRefused("the token is wrong or was revoked; @BotFather gives a new one")
    if code == 413:
        return Refused("too large for the Bot API server")
    if code == 409:
        return Conflict(words)
    return {400: Refused, 403: Forbidden, 404: Refused}.get(code, TurnedAway)(words or f"Telegram answered {code}")


def _error_body(content: str) -> Mapping[str, Any]:
    """The error in Telegram's answer; empty if the answer isn't Telegram's."""
    body = fields_of(json_or_text(content))
    return body if body.get("ok") is False else {}
