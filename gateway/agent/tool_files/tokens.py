"""Access tokens, in memory only: made from a refresh token, renewed before they end, one renewal at a time."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.agent.credentials import Credentials
from gateway.domain.clock import Clock
from gateway.domain.ids import PrincipalId
from gateway.net import api
from gateway.net.addresses import Rules
from gateway.net.api import AccessToken
from gateway.secrets.injection import Outgoing, inject
from gateway.workspace.tool_files.declaration import Credential, OAuth
from gateway.workspace.tool_files.tool_file import ToolFile

EARLY_SECONDS = 60.0
"""Before its end, or at half of its time if that is later, an access token isn't sent any more."""


@dataclass
class AccessTokens:
    """One for each person and tool."""

    credentials: Credentials
    rules: Callable[[], Rules]
    clock: Clock
    _held: dict[tuple[PrincipalId, str], AccessToken] = field(default_factory=dict, init=False)
    _unsaved: dict[tuple[PrincipalId, str], str] = field(default_factory=dict, init=False, repr=False)
    """Refresh tokens that replace stored ones, until the database has taken them."""
    _locks: defaultdict[tuple[PrincipalId, str], asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock), init=False
    )

    async def get(self, tool: ToolFile, principal: PrincipalId, refused: str = "") -> str:
        """One that the API hasn't `refused`; raises `NetError` and `SecretRefused`."""
        credential = tool.credential
        assert credential is not None, "asked for where there is one"
        assert credential.oauth is not None, "asked for where there is one"
        key = principal, f"{tool.name} {tool.base} {credential}"
        async with self._locks[key]:
            held = self._held.get(key)
            if held is None or held.token == refused or held.until <= self.clock.monotonic():
                held = self._held[key] = await self._renewed(tool.name, credential, credential.oauth, principal)
            return held.token

    async def _renewed(self, tool: str, credential: Credential, grant: OAuth, principal: PrincipalId) -> AccessToken:
        await self._save(credential.secret, principal)
        injected = inject(_request(credential.secret, grant), tool, self.credentials.finder(principal))
        await self.credentials.used(injected.used, principal, f"{tool} {grant.token_url}")
        tokens = await api.exchange_refresh_token(injected.request, self.rules)
        self.credentials.hide(credential.secret, principal, tokens.access_token)
        if tokens.refresh_token and tokens.refresh_token != injected.request.fields["refresh_token"]:
            self._unsaved[principal, credential.secret] = tokens.refresh_token
            await self._save(credential.secret, principal)
        lasts = max(tokens.expires_in - EARLY_SECONDS, tokens.expires_in / 2)
        return AccessToken(tokens.access_token, self.clock.monotonic() + lasts)

    async def _save(self, name: str, principal: PrincipalId) -> None:
        """The endpoint takes no other one now: it is kept until it is stored."""
        if value := self._unsaved.get((principal, name)):
            await self.credentials.renewed(name, value, principal)
            del self._unsaved[principal, name]


def _request(secret: str, grant: OAuth) -> Outgoing:
    others = {"client_secret": f"${{secret:{grant.client_secret_name}}}"} if grant.client_secret_name else {}
    scope = {"scope": grant.scope} if grant.scope else {}
    fields = {"grant_type": "refresh_token", "refresh_token": f"${{secret:{secret}}}", "client_id": grant.client_id}
    return Outgoing("POST", grant.token_url, {"Accept": "application/json"}, {**fields, **others, **scope})
