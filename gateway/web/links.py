"""One-time links: sent or printed, used once; only their hashes are kept, in memory."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, Literal, TypeVar
from urllib.parse import quote

from cachetools import FIFOCache

from gateway.domain.ids import PrincipalId
from gateway.domain.time import Clock
from gateway.store.people.tokens import sha256

LIFETIME = timedelta(minutes=10)
_MAX_LINKS = 100
Purpose = TypeVar("Purpose")


class _Links(Generic[Purpose]):
    """The links that are still valid, each with its purpose."""

    def __init__(self) -> None:
        self._links: FIFOCache[str, tuple[datetime, Purpose]] = FIFOCache(_MAX_LINKS)

    def redeem(self, secret: str, now: datetime) -> Purpose | None:
        """The purpose of the link with this secret, which is used up; None if it isn't valid."""
        until, purpose = self._links.pop(sha256(secret), (now, None))
        return purpose if now < until else None

    def _new_secret(self, purpose: Purpose, now: datetime) -> str:
        """Its place is a link's fragment, which browsers do not send and logs do not contain."""
        secret = secrets.token_hex(32)  # no character of it is markup in a messenger
        self._links[sha256(secret)] = now + LIFETIME, purpose
        return secret


class LoginLinks(_Links[Literal[True]]):
    """Links that sign the owner in."""

    def issue(self, base_url: str, now: datetime) -> str:
        """A new link."""
        return f"{base_url.rstrip('/')}/login#t={self._new_secret(True, now)}"


class SecretLinks(_Links[tuple[PrincipalId, str]]):
    """Links to the form for one person's secret, or the password of a file, by its name or path."""

    def issue(self, base_url: str, principal: PrincipalId, name: str, now: datetime) -> str:
        """A new link; its data is in the fragment."""
        return f"{base_url.rstrip('/')}/secret#t={self._new_secret((principal, name), now)}&name={quote(name)}"


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
