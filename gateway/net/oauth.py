"""Token endpoints: a refresh token is exchanged for an access token, and perhaps for the next refresh token."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import BaseModel, Field, ValidationError

from gateway.net.api import Answer, send
from gateway.net.errors import NetError
from gateway.net.rules import Rules
from gateway.net.urls import parse
from gateway.secrets.injection import Outgoing

UNSAID_SECONDS = 600
"""How long a token is used whose endpoint doesn't say how long it lasts."""
_CODE = re.compile(r'"error"\s*:\s*"([a-z_]{1,40})"')


class Tokens(BaseModel):
    """What the endpoint gives; `refresh_token` replaces the one that was sent."""

    access_token: str = Field(min_length=1, max_length=16_384, pattern=r"^[\x21-\x7e]+$", repr=False)
    expires_in: float = Field(UNSAID_SECONDS, ge=0, le=10**8)
    refresh_token: str | None = Field(None, min_length=1, max_length=16_384, pattern=r"^[\x21-\x7e]+$", repr=False)


@dataclass(frozen=True, slots=True)
class Held:
    """An access token, and until when it may be sent, by the caller's monotonic clock."""

    token: str = field(repr=False)
    until: float


async def exchange(request: Outgoing, rules: Callable[[], Rules]) -> Tokens:
    """What it answers to this token request; raises `NetError`, without any of the answer's words."""
    answer, host = await send(request, rules), parse(request.url).host
    if answer.status != 200:
        raise NetError("credential_refused", f"{host} refused the refresh token{_reason(answer)}; {_ADVICE}")
    try:
        return Tokens.model_validate_json(answer.text)
    except ValidationError:
        raise NetError("bad_answer", f"{host} did not answer as a token endpoint does.") from None


_ADVICE = "if it was revoked or has expired, its owner has to store a new one."


def _reason(answer: Answer) -> str:
    found = _CODE.search(answer.text[:10_000])
    return f" ({answer.status}, {found[1]})" if found else f" ({answer.status})"
