"""One-time links: sent or printed, used once; only their hashes are kept, in memory."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import quote

from cachetools import FIFOCache

from gateway.domain.ids import PrincipalId
from gateway.domain.time import Clock
from gateway.store.people.tokens import sha256

LIFETIME = timedelta(minutes=10)
_MAX_LINKS = 100


class LoginLinks:
    """The links that are still valid."""

    def __init__(self) -> None:
        self._expires_at: FIFOCache[str, datetime] = FIFOCache(_MAX_LINKS)

    def issue(self, base_url: str, now: datetime) -> str:
        """A new link; its secret is in the fragment, which browsers do not send and logs do not contain."""
        secret = secrets.token_hex(32)  # no character of it is markup in a messenger
        self._expires_at[sha256(secret)] = now + LIFETIME
        return f"{base_url.rstrip('/')}/login#t={secret}"

    def redeem(self, secret: str, now: datetime) -> bool:
        """Whether the secret is valid; it is used up by this call."""
        until = self._expires_at.pop(sha256(secret), None)
        return until is not None and now < until


class SecretLinks:
    """The links to the form for one person's secret, or the password of a file, that are still valid."""

    def __init__(self) -> None:
        self._links: FIFOCache[str, tuple[datetime, PrincipalId, str]] = FIFOCache(_MAX_LINKS)

    def issue(self, base_url: str, principal: PrincipalId, name: str, now: datetime) -> str:
        """A new link, for a secret or the path of a locked file; its data is in the fragment."""
        secret = secrets.token_hex(32)
        self._links[sha256(secret)] = now + LIFETIME, principal, name
        return f"{base_url.rstrip('/')}/secret#t={secret}&name={quote(name)}"

    def redeem(self, secret: str, now: datetime) -> tuple[PrincipalId, str] | None:
        """The person and the name or path; None if the link isn't valid. It is used up by this call."""
        link = self._links.pop(sha256(secret), None)
        return link[1:] if link and now < link[0] else None


@dataclass(slots=True)
class PageLinks:
    """Links that work on other machines, which takes an https address; another one takes a restart."""

    public_url: str | None
    clock: Clock
    logins: LoginLinks = field(default_factory=LoginLinks)
    secrets: SecretLinks = field(default_factory=SecretLinks)

    def sign_in(self) -> str | None:
        """A new sign-in link; None if only this machine's own browser reaches the page."""
        return self.logins.issue(base, self.clock.now()) if (base := self._base) else None

    def secret(self, principal: PrincipalId, name: str) -> str | None:
        """A new link to the form for a person's secret; None as with `sign_in`."""
        return self.secrets.issue(base, principal, name, self.clock.now()) if (base := self._base) else None

    @property
    def _base(self) -> str | None:
        return self.public_url if self.public_url and self.public_url.startswith("https://") else None
