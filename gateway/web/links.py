"""One-time sign-in links: printed in a terminal, used once, never stored in the clear or on disk."""

import hashlib
import secrets
from datetime import datetime, timedelta

LIFE = timedelta(minutes=10)
_OPEN_AT_ONCE = 100


class LoginLinks:
    """The links that are still good."""

    def __init__(self) -> None:
        self._good_until: dict[str, datetime] = {}

    def issue(self, base_url: str, now: datetime) -> str:
        """A fresh link; its secret is in the fragment, which no browser sends and no log sees."""
        secret = secrets.token_urlsafe(32)
        self._good_until[_hash(secret)] = now + LIFE
        while len(self._good_until) > _OPEN_AT_ONCE:
            del self._good_until[next(iter(self._good_until))]
        return f"{base_url.rstrip('/')}/login#t={secret}"

    def redeem(self, secret: str, now: datetime) -> bool:
        """Whether this was a good link until now; it is none any more."""
        until = self._good_until.pop(_hash(secret), None)
        return until is not None and now < until


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
