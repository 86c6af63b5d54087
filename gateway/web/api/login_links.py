"""Sign-in links for browsers."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from gateway.domain.conversation.inbound import LOCAL
from gateway.domain.people.credentials import Scope
from gateway.web.auth.access import Caller, needs
from gateway.web.http.errors import Refused
from gateway.web.links import LIFETIME
from gateway.web.site import AtSite

router = APIRouter()


@dataclass(frozen=True, slots=True)
class LoginLink:
    """A one-time sign-in link; `expires_in` is in seconds."""

    url: str
    expires_in: int


@router.post("/api/login-links", status_code=201)
async def issue(request: Request, site: AtSite, caller: Annotated[Caller, Depends(needs(Scope.ADMIN))]) -> LoginLink:
    """Create a link to the page; valid once, for ten minutes.

    Only the local token may: a link makes its holder the owner.
    """
    if caller.account != LOCAL:
        message = "Only the local token makes sign-in links: run `supaclaw web` on the gateway's machine."
        raise Refused(403, "missing_scope", message, type="permission_error")
    return LoginLink(site.access.sign_in_link(str(request.base_url)), int(LIFETIME.total_seconds()))
