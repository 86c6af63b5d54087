"""One-time sign-in links: printed in a terminal, used once; only their hashes are kept, in memory."""

import hashlib
import secrets
from datetime import datetime, timedelta

LIFETIME = timedelta(minutes=10)
_OPEN_AT_ONCE = 100


class LoginLinks:
    """The links that are still valid."""

    def __init__(self) -> None:
        self._good_until: dict[str, datetime] = {}

    def issue(self, base_url: str, now: datetime) -> str:
        """A new link; its secret is in the fragment, which browsers do not send and logs do not contain."""
        secret = secrets.token_urlsafe(32)
        self._good_until[_hash(secret)] = now + LIFETIME
        while len(self._good_until) > _OPEN_AT_ONCE:
            del self._good_until[next(iter(self._good_until))]
        return f"{base_url.rstrip('/')}/login#t={secret}"

    def redeem(self, secret: str, now: datetime) -> bool:
        """Whether the secret is valid; it is used up by this call."""
        until = self._good_until.pop(_hash(secret), None)
        return until is not None and now < until


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
