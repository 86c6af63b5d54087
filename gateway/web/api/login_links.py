"""Sign-in links for browsers."""

from dataclasses import dataclass

from fastapi import APIRouter, Depends, Request

from gateway.domain.scopes import Scope
from gateway.web.access import needs
from gateway.web.links import LIFETIME
from gateway.web.site import AtSite

router = APIRouter()


@dataclass(frozen=True, slots=True)
class LoginLink:
    """A one-time sign-in link; `expires_in` is in seconds."""

    url: str
    expires_in: int


@router.post("/api/login-links", dependencies=[Depends(needs(Scope.ADMIN))], status_code=201)
async def issue(request: Request, site: AtSite) -> LoginLink:
    """Create a link to the page; valid once, for ten minutes."""
    return LoginLink(site.backend.sign_in_link(str(request.base_url)), int(LIFETIME.total_seconds()))
